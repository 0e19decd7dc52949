// SPDX-License-Identifier: Apache-2.0
// Pictures with labels, prepared for a model.
//
//   TESSERA_ASSIGN_OR_RETURN(auto source, ImageSource::Open("train"));
//   TESSERA_ASSIGN_OR_RETURN(auto data, ImageClassificationDataset::Create(source, processor,
//       {.random_flip = true, .seed = 7}));
//   data->MakeBatch(samples);
//
// A batch has `pixel_values` float32 [B, C, H, W] and, of a source with labels, `labels` int64 [B].
// Crops and mirror images
// are functions of the seed and the sample's position in the line of all samples drawn; a batch is
// made on several threads.
#ifndef TESSERA_DATA_CLASSIFICATION_IMAGE_CLASSIFICATION_DATASET_H_
#define TESSERA_DATA_CLASSIFICATION_IMAGE_CLASSIFICATION_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/classification/image_source.h"
#include "data/dataset/dataset.h"
#include "data/image/image_processor.h"

namespace tessera::data {

struct ImageClassificationOptions {
  // Of a picture that has the model's size, a crop out of a border of an eighth; of others, a crop
  // of 8 % to 100 % of the area, of an aspect ratio between 3/4 and 4/3 (Szegedy et al. 2014).
  bool random_crop = false;
  bool random_flip = false;  // every second picture, on average, is mirrored
  uint64_t seed = 0;
  // The names that classes may have, in the order of their ids; empty: the source's.
  std::vector<std::string> label_names = {};
};

class ImageClassificationDataset : public Dataset {
 public:
  // InvalidArgument for a class that label_names does not have.
  static StatusOr<std::shared_ptr<const ImageClassificationDataset>> Create(
      std::shared_ptr<const ImageSource> source, ImageProcessor processor,
      const ImageClassificationOptions& options);

  int64_t size() const override { return source_->size(); }
  StatusOr<Batch> MakeBatch(std::span<const Sample> samples) const override;
  std::string NameOf(int64_t index) const override { return source_->NameOf(index); }

  const std::vector<std::string>& label_names() const { return label_names_; }
  // The label of every picture.
  std::vector<int64_t> labels() const;

 private:
  ImageClassificationDataset(std::shared_ptr<const ImageSource> source, ImageProcessor processor,
                             const ImageClassificationOptions& options)
      : source_(std::move(source)), processor_(std::move(processor)), options_(options) {}
  Status Prepare(const Sample& sample, float* pixels) const;

  const std::shared_ptr<const ImageSource> source_;
  const ImageProcessor processor_;
  const ImageClassificationOptions options_;
  std::vector<std::string> label_names_;
  std::vector<int64_t> ids_;  // of the source's classes
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_CLASSIFICATION_IMAGE_CLASSIFICATION_DATASET_H_
