// SPDX-License-Identifier: Apache-2.0
#include "models/config_reader.h"

#include <algorithm>

#include "nlohmann/json.hpp"

namespace tessera::models {

bool ConfigReader::Has(const char* key) const {
  return json_.contains(key) && !json_[key].is_null();
}

void ConfigReader::ReadPaddingToken(int64_t vocab_size, int64_t* id) {
  std::optional<int64_t> given;
  Read("pad_token_id", &given);
  if (!given && json_.contains("pad_token_id")) *id = -1;
  if (!given && *id >= 0) given = *id;
  if (!given) return;
  *id = *given < 0 ? vocab_size + *given : *given;
  Require(*id >= 0 && *id < vocab_size,
          Concat("'pad_token_id' (", *given, ") is outside of the vocabulary (", vocab_size, ")"));
}

std::optional<std::vector<bool>> ConfigReader::ReadSlidingLayers(size_t layers) {
  if (!Has("layer_types")) return std::nullopt;
  std::vector<bool> slides(layers, false);
  const auto& types = json_["layer_types"];
  Require(types.is_array() && types.size() == layers,
          Concat("'layer_types' must be a list of ", layers, " names"));
  if (!status_.ok()) return slides;
  for (size_t i = 0; i < layers; ++i) {
    slides[i] = types[i] == "sliding_attention";
    Require(slides[i] || types[i] == "full_attention",
            Concat("'layer_types' has ", types[i].dump(),
                   ", expected full_attention or sliding_attention"));
  }
  return slides;
}

size_t ConfigReader::ReadArchitecture(const std::vector<std::string>& names) {
  if (!Has("architectures") || json_["architectures"].empty()) return 0;
  const auto& given = json_["architectures"];
  Require(given.is_array() && given[0].is_string(), "'architectures' must be a list of names");
  if (!status_.ok()) return 0;
  const auto found = std::find(names.begin(), names.end(), given[0].get<std::string>());
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  Require(false,
          Concat("'architectures': ", given[0].dump(), " is not supported; known are ", known));
  return 0;
}

}  // namespace tessera::models
