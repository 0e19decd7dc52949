// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/indexed_dataset.h"
#include "train/config/data_config.h"

namespace tessera::train {
namespace {

DataSource ParseSource(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || PathExists(text) || data::IndexedDatasetPrefix(text)) {
    return {text, std::nullopt};
  }
  double weight = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, weight);
  const bool number = error == std::errc() && stop == end && std::isfinite(weight) && weight > 0;
  return number ? DataSource{text.substr(0, colon), weight} : DataSource{text, std::nullopt};
}

}  // namespace

std::vector<DataSource> DataConfig::Sources() const {
  std::vector<DataSource> sources;
  for (const std::string& text : data) {
    sources.push_back(ParseSource(text));
    std::string& path = sources.back().path;
    path = data::SplitPath(path, split, dataset_config_name);
  }
  return sources;
}

std::string DataConfig::Validation() const {
  if (val_split.empty()) return val_data;
  const std::string folder =
      val_data.empty() && !data.empty() ? ParseSource(data[0]).path : val_data;
  return data::SplitPath(folder, val_split, dataset_config_name);
}

}  // namespace tessera::train
