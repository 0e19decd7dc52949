// SPDX-License-Identifier: Apache-2.0
#include "data/image/image_processor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"

namespace tessera::data {
namespace {

using nlohmann::json;

constexpr int64_t kMostPixels = 1 << 14;  // of one side

class Reader {
 public:
  Reader(const json& json, const std::string& source) : json_(json), source_(source) {}

  void Read(const char* key, bool* value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return Fail(key, "must be true or false");
    *value = found->get<bool>();
  }
  void Read(const char* key, double* value) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (!found->is_number()) return Fail(key, "must be a number");
    *value = found->get<double>();
  }
  void Read(const char* key, std::vector<double>* values) {
    const json* found = Find(key);
    if (found == nullptr) return;
    const json list = found->is_number() ? json::array({*found}) : *found;
    if (!list.is_array() || list.empty()) return Fail(key, "must be a list of numbers");
    values->clear();
    for (const json& item : list) {
      if (!item.is_number()) return Fail(key, "must be a list of numbers");
      values->push_back(item.get<double>());
    }
  }
  // 224, {"height": 224, "width": 200}, or {"shortest_edge": 224} where that is asked for.
  void ReadSize(const char* key, int64_t* height, int64_t* width, int64_t* shortest_edge) {
    const json* found = Find(key);
    if (found == nullptr) return;
    if (found->is_number_integer()) {
      *height = *width = Side(key, *found);
    } else if (found->is_object() && found->contains("height") && found->contains("width")) {
      *height = Side(key, (*found)["height"]);
      *width = Side(key, (*found)["width"]);
    } else if (shortest_edge != nullptr && found->is_object() && found->size() == 1 &&
               found->contains("shortest_edge")) {
      *shortest_edge = Side(key, (*found)["shortest_edge"]);
    } else {
      Fail(key, Concat("must be a number, or a height and a width, not ", found->dump()));
    }
  }
  // A key of whose values only `false` is supported.
  void Refuse(const char* key) {
    const json* found = Find(key);
    if (found != nullptr && *found != false) Fail(key, Concat(found->dump(), " is not supported"));
  }
  void Fail(const char* key, const std::string& problem) {
    if (status_.ok()) status_ = InvalidArgument(source_, ": '", key, "' ", problem);
  }
  const json* Find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  const Status& status() const { return status_; }

 private:
  int64_t Side(const char* key, const json& value) {
    if (value.is_number_integer() && value.get<int64_t>() > 0 &&
        value.get<int64_t>() <= kMostPixels) {
      return value.get<int64_t>();
    }
    Fail(key, Concat("is out of range: ", value.dump()));
    return 1;
  }

  const json& json_;
  const std::string source_;
  Status status_;
};

}  // namespace

StatusOr<ImageProcessorConfig> ImageProcessorConfig::FromJson(const json& json,
                                                              const std::string& source) {
  if (!json.is_object()) return InvalidArgument(source, ": not a JSON object");
  ImageProcessorConfig c;
  Reader reader(json, source);
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    const nlohmann::json* type = reader.Find(key);
    if (type != nullptr && *type != "ViTImageProcessor" && *type != "ViTImageProcessorFast" &&
        *type != "ViTFeatureExtractor") {
      reader.Fail(key, Concat(type->dump(), " is not supported"));
    }
  }
  reader.Refuse("do_pad");
  reader.Read("do_resize", &c.do_resize);
  reader.ReadSize("size", &c.height, &c.width, &c.shortest_edge);
  double resample = static_cast<double>(c.resample);
  reader.Read("resample", &resample);
  if (resample != 0 && resample != 1 && resample != 2 && resample != 3) {
    reader.Fail("resample", Concat(resample, " is not supported"));
  } else {
    c.resample = static_cast<Resample>(static_cast<int>(resample));
  }
  reader.Read("do_center_crop", &c.do_center_crop);
  c.crop_height = c.height;
  c.crop_width = c.width;
  reader.ReadSize("crop_size", &c.crop_height, &c.crop_width, nullptr);
  reader.Read("do_rescale", &c.do_rescale);
  reader.Read("rescale_factor", &c.rescale_factor);
  reader.Read("do_normalize", &c.do_normalize);
  reader.Read("image_mean", &c.image_mean);
  reader.Read("image_std", &c.image_std);
  for (const double deviation : c.image_std) {
    if (!(deviation > 0)) reader.Fail("image_std", Concat("is out of range: ", deviation));
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
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
  const auto size = model_config.value("image_size", int64_t{224});
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
  Convert(current, out);
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
