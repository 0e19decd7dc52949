// SPDX-License-Identifier: Apache-2.0
// How positions are rotated, between a model's configuration and a GGUF file: keys rope.*, and the
// factors that files hold as tensors.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufRotary rotary, GgufRotaryOf(config, *architecture));
//   TESSERA_RETURN_IF_ERROR(ReadGgufRotary(file, &reader, {.base = 10000, .dims = 64},
//   &config_json));
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_ROTARY_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_ROTARY_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/hub/gguf/gguf_architectures.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_key_reader.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct LlamaConfig;

// What divides the frequency of each pair of a head, as an F32 tensor.
struct GgufFactors {
  std::string_view name;
  std::vector<float> values;
};

struct GgufRotary {
  GgufMetadata keys;  // without the architecture's name before them
  GgufMetadata keys_of_ours;
  std::vector<GgufFactors> factors;
};

// Whether a tensor is such a one, and no parameter.
bool IsGgufFactors(std::string_view tensor);

// InvalidArgument, with the key of config.json, for what a file cannot say.
StatusOr<GgufRotary> GgufRotaryOf(const LlamaConfig& config, const GgufArchitecture& architecture);

// Adds `rope_scaling` and what belongs to it to a config.json that has `max_position_embeddings`.
// `dims` features of a head are rotated, in pairs. Their frequencies are powers of `base`.
struct GgufPairs {
  double base = 10000;
  int64_t dims = 0;
};
Status ReadGgufRotary(const GgufFile& file, GgufKeyReader* reader, const GgufPairs& pairs,
                      nlohmann::json* config);

// "'key': what cannot be said in a GGUF file".
Status UnsayableInGguf(std::string_view key, std::string_view what);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_ROTARY_H_
