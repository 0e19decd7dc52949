// SPDX-License-Identifier: Apache-2.0
// From a picture to a model's `pixel_values`, as preprocessor_config.json says.
//
//   TESSERA_ASSIGN_OR_RETURN(ImageProcessor processor, ImageProcessor::Load("vit-folder", 3));
//   std::vector<float> chw(processor.OutputSize());
//   processor.Apply(image, chw.data());                     // [channels, height, width]
//
// Resized (filters and rounding are PIL's), the middle cut out, multiplied by `rescale_factor`,
// (x - mean) / std per channel; each step where its do_* says so. The numbers are those of Hugging
// Face's ViTImageProcessor. Immutable; safe from several threads.
#ifndef TESSERA_DATA_IMAGE_IMAGE_PROCESSOR_H_
#define TESSERA_DATA_IMAGE_IMAGE_PROCESSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "data/image/image.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

struct ImageProcessorConfig {
  bool do_resize = true;
  int64_t height = 224;
  int64_t width = 224;
  int64_t shortest_edge = 0;  // > 0: the shorter side becomes this, instead of height and width
  Resample resample = Resample::kBilinear;
  bool do_center_crop = false;
  int64_t crop_height = 0;
  int64_t crop_width = 0;
  bool do_rescale = true;
  double rescale_factor = 1.0 / 255.0;
  bool do_normalize = true;
  std::vector<double> image_mean = {0.5};  // one, or one per channel
  std::vector<double> image_std = {0.5};

  // Keys as in preprocessor_config.json. A kind of processor, or a step, that would change results
  // and is not supported is refused by name.
  static StatusOr<ImageProcessorConfig> FromJson(const nlohmann::json& json,
                                                 const std::string& source);
  static const OptionTable& Table();
  nlohmann::json ToJson() const;
};

class ImageProcessor {
 public:
  // InvalidArgument if the numbers of means and deviations do not go with `channels` (1 or 3), or
  // pictures would come out in sizes of their own (a shortest edge without a crop, no resizing).
  static StatusOr<ImageProcessor> Create(ImageProcessorConfig config, int64_t channels,
                                         const std::string& source);
  // Reads <folder>/preprocessor_config.json.
  static StatusOr<ImageProcessor> Load(const std::string& folder, int64_t channels);
  // That of a model's folder where it has one, else what processors do by default, at the size that
  // the model's config.json says (`image_size`, `num_channels`).
  static StatusOr<ImageProcessor> OfModel(const std::string& folder,
                                          const nlohmann::json& model_config);

  int64_t height() const;
  int64_t width() const;
  int64_t channels() const { return channels_; }
  int64_t OutputSize() const { return channels_ * height() * width(); }

  // Any picture to [channels, height, width]: ResizeAndCrop, then Convert.
  void Apply(const Image& image, float* out) const;
  // Any picture to height() x width() bytes of channels() channels.
  Image ResizeAndCrop(const Image& image) const;
  // Rescaling and normalisation alone, of a picture that has the size and the channels already (a
  // random crop); throws Error for another one.
  void Convert(const Image& image, float* out) const;

  const ImageProcessorConfig& config() const { return config_; }
  // Writes <folder>/preprocessor_config.json.
  Status Save(const std::string& folder) const;

 private:
  ImageProcessor(ImageProcessorConfig config, int64_t channels)
      : config_(std::move(config)), channels_(channels) {}

  ImageProcessorConfig config_;
  int64_t channels_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_IMAGE_IMAGE_PROCESSOR_H_
