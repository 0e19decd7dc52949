// SPDX-License-Identifier: Apache-2.0
#include "data/image/image_processor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using nlohmann::json;

constexpr double kMostPixels = 1 << 14;  // of one side

// 224, {"height": 224, "width": 200}, or {"shortest_edge": 224} where that is asked for.
Status ReadSize(const json& object, const char* key, const std::string& source, int64_t* height,
                int64_t* width, int64_t* shortest_edge) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return OkStatus();
  const std::string where = Concat(source, ": '", key, "'");
  const OptionNotes side = {.least = 1, .most = kMostPixels};
  if (!found->is_object()) {
    TESSERA_RETURN_IF_ERROR(ReadValue(*found, where, height, side));
    *width = *height;
    return OkStatus();
  }
  for (const auto& [side_key, value] : found->items()) {
    if (value.is_null()) return InvalidArgument(where, ": '", side_key, "' is null");
  }
  if (found->contains("height") && found->contains("width")) {
    TESSERA_RETURN_IF_ERROR(ReadMember(*found, "height", where, height, side));
    return ReadMember(*found, "width", where, width, side);
  }
  if (shortest_edge != nullptr && found->size() == 1 && found->contains("shortest_edge")) {
    return ReadMember(*found, "shortest_edge", where, shortest_edge, side);
  }
  return InvalidArgument(where, " must be a number, or a height and a width, not ", found->dump());
}

}  // namespace

const OptionTable& ImageProcessorConfig::Table() {
  using C = ImageProcessorConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("Picture processing")
          .Add("do_resize", &C::do_resize, "resizes pictures to `size`")
          .Add("do_center_crop", &C::do_center_crop, "cuts out the middle, of `crop_size`")
          .Add("do_rescale", &C::do_rescale, "multiplies by rescale_factor")
          .Add("rescale_factor", &C::rescale_factor, "multiplies bytes")
          .Add("do_normalize", &C::do_normalize, "subtracts the mean, divides by the deviation")
          .Add("image_mean", &C::image_mean, "one mean, or one per channel")
          .Add("image_std", &C::image_std, "one deviation, or one per channel", {.above = 0})
          .AddUnsupported({{"do_pad", false}}));
  return *table;
}

StatusOr<ImageProcessorConfig> ImageProcessorConfig::FromJson(const json& json,
                                                              const std::string& source) {
  ImageProcessorConfig c;
  TESSERA_RETURN_IF_ERROR(Table().ApplySupported(json, source, &c));
  const OptionNotes kinds = {
      .choices = {"ViTImageProcessor", "ViTImageProcessorFast", "ViTFeatureExtractor"}};
  std::string kind;
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    TESSERA_RETURN_IF_ERROR(ReadMember(json, key, source, &kind, kinds));
  }
  auto resample = static_cast<int64_t>(c.resample);
  TESSERA_RETURN_IF_ERROR(ReadMember(json, "resample", source, &resample, {.least = 0, .most = 3}));
  c.resample = static_cast<Resample>(resample);
  TESSERA_RETURN_IF_ERROR(ReadSize(json, "size", source, &c.height, &c.width, &c.shortest_edge));
  c.crop_height = c.height;
  c.crop_width = c.width;
  TESSERA_RETURN_IF_ERROR(
      ReadSize(json, "crop_size", source, &c.crop_height, &c.crop_width, nullptr));
  return c;
}

json ImageProcessorConfig::ToJson() const {
  json out = {{"image_processor_type", "ViTImageProcessor"},
              {"do_resize", do_resize},
              {"size", {{"height", height}, {"width", width}}},
              {"resample", static_cast<int>(resample)},
              {"do_rescale", do_rescale},
              {"rescale_factor", rescale_factor},
              {"do_normalize", do_normalize},
              {"image_mean", image_mean},
              {"image_std", image_std}};
  if (shortest_edge > 0) out["size"] = {{"shortest_edge", shortest_edge}};
  if (do_center_crop) {
    out["do_center_crop"] = true;
    out["crop_size"] = {{"height", crop_height}, {"width", crop_width}};
  }
  return out;
}

StatusOr<ImageProcessor> ImageProcessor::Create(ImageProcessorConfig config, int64_t channels,
                                                const std::string& source) {
  if (channels != 1 && channels != 3) {
    return InvalidArgument(source, ": pictures of ", channels, " channels; 1 and 3 are known");
  }
  for (const auto& [key, values] :
       {std::pair("image_mean", &config.image_mean), {"image_std", &config.image_std}}) {
    if (values->size() == 1) values->resize(static_cast<size_t>(channels), (*values)[0]);
    const auto count = static_cast<int64_t>(values->size());
    if (config.do_normalize && count != channels) {
      return InvalidArgument(source, ": '", key, "' has ", count, " numbers for ", channels,
                             " channels");
    }
  }
  if (!config.do_center_crop && (!config.do_resize || config.shortest_edge > 0)) {
    return InvalidArgument(source,
                           ": pictures would keep sizes of their own; set 'size' to a "
                           "height and a width, or 'do_center_crop'");
  }
  return ImageProcessor(std::move(config), channels);
}

StatusOr<ImageProcessor> ImageProcessor::Load(const std::string& folder, int64_t channels) {
  const std::string path = JoinPath(folder, "preprocessor_config.json");
  TESSERA_ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
  TESSERA_ASSIGN_OR_RETURN(ImageProcessorConfig config, ImageProcessorConfig::FromJson(root, path));
  return Create(std::move(config), channels, path);
}

StatusOr<ImageProcessor> ImageProcessor::OfModel(const std::string& folder,
                                                 const json& model_config) {
  // Files may give both sides of a square.
  const json sides = model_config.value("image_size", json(224));
  const auto size = (sides.is_array() ? sides.at(0) : sides).get<int64_t>();
  const auto channels = model_config.value("num_channels", int64_t{3});
  if (PathExists(JoinPath(folder, "preprocessor_config.json"))) return Load(folder, channels);
  ImageProcessorConfig config;
  config.height = size;
  config.width = size;
  return Create(config, channels, folder);
}

Status ImageProcessor::Save(const std::string& folder) const {
  return WriteFileAtomically(JoinPath(folder, "preprocessor_config.json"),
                             config_.ToJson().dump(2) + "\n");
}

int64_t ImageProcessor::height() const {
  return config_.do_center_crop ? config_.crop_height : config_.height;
}
int64_t ImageProcessor::width() const {
  return config_.do_center_crop ? config_.crop_width : config_.width;
}

void ImageProcessor::Apply(const Image& image, float* out) const {
  Convert(ResizeAndCrop(image), out);
}

Image ImageProcessor::ResizeAndCrop(const Image& image) const {
  Image current = WithChannels(image, channels_);
  if (config_.do_resize) {
    int64_t height = config_.height;
    int64_t width = config_.width;
    if (const int64_t edge = config_.shortest_edge; edge > 0) {
      const bool tall = current.height >= current.width;
      height = tall ? edge * current.height / current.width : edge;
      width = tall ? edge : edge * current.width / current.height;
    }
    current = Resize(current, height, width, config_.resample);
  }
  if (config_.do_center_crop) {
    current = CenterCrop(current, config_.crop_height, config_.crop_width);
  }
  return current;
}

void ImageProcessor::Convert(const Image& image, float* out) const {
  TESSERA_CHECK(image.height == height() && image.width == width() && image.channels == channels_,
                "image_processor", image.height, " x ", image.width, " pixels of ", image.channels,
                " channels, not ", height(), " x ", width(), " of ", channels_);
  const int64_t count = image.height * image.width;
  for (int64_t c = 0; c < channels_; ++c) {
    // Rounded to float32 between the steps, as numpy does it.
    const auto at = static_cast<size_t>(c);
    const float mean = config_.do_normalize ? static_cast<float>(config_.image_mean[at]) : 0.0f;
    const float deviation = config_.do_normalize ? static_cast<float>(config_.image_std[at]) : 1.0f;
    float table[256];
    for (int v = 0; v < 256; ++v) {
      float x = static_cast<float>(v);
      if (config_.do_rescale) x = static_cast<float>(v * config_.rescale_factor);
      table[v] = config_.do_normalize ? (x - mean) / deviation : x;
    }
    const uint8_t* from = image.pixels.data() + c;
    for (int64_t i = 0; i < count; ++i) *out++ = table[from[i * channels_]];
  }
}

}  // namespace tessera::data
