// SPDX-License-Identifier: Apache-2.0
// What a model is called in GGUF files (models/hub/gguf/gguf_architectures.h): hyperparameters and
// tensors.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufNames names, GgufNames::Of(config_json));
//   names.metadata();                                            // "gpt2.block_count" and so on
//   names.PlaceOf("transformer.h.0.attn.c_attn.weight");         // "blk.0.attn_qkv.weight"
//
// What llama.cpp would compute otherwise is refused by the key of config.json: another activation,
// scaled attention, biases that it has no place for. Windows of attention, which it does not have
// for llama and phi3, are written. Of LongRoPE it takes one list of factors by the longest text
// that it has room for.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_NAMES_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/hub/gguf/gguf_architectures.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_rotary.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct LlamaConfig;

// A parameter's place in a GGUF file.
struct GgufPlace {
  std::string name;
  // The weight is [inputs, outputs] in its model and [outputs, inputs] in the file.
  bool transposed = false;
  // Above 0: in each of so many heads, which rows are cut into, row i of the second half follows
  // row i of the first: pairs that are rotated together are neighbours.
  int64_t interleaved_heads = 0;
  // Held as F32 unless it is quantised.
  bool wide = false;
  // What the file's numbers have more than the model's: 1 of Gemma's norms.
  double added = 0;
  // Above 0: the tensor holds so many parameters of one shape, one behind the other. This is number
  // `slice` of them, which older files have as a tensor of its own.
  int64_t slices = 0;
  int64_t slice = 0;
  std::string own_name = {};
};

class GgufNames {
 public:
  // Of a config.json that its family accepts. InvalidArgument, with the key, for what GGUF cannot
  // say.
  static StatusOr<GgufNames> Of(const nlohmann::json& config);

  std::string architecture() const { return std::string(architecture_->name); }
  // The hyperparameters, without general.*.
  const GgufMetadata& metadata() const { return metadata_; }
  // Tensors that are no parameters.
  const std::vector<GgufFactors>& factors() const { return factors_; }
  // nullopt for a parameter that these architectures do not have.
  std::optional<GgufPlace> PlaceOf(const std::string& parameter) const;

 private:
  Status TakeGpt(const nlohmann::json& config);
  Status TakeLlama(const nlohmann::json& config);
  Status TakeGemma(const LlamaConfig& config);
  void Add(std::string_view key, GgufValue value);

  const GgufArchitecture* architecture_ = nullptr;
  GgufMetadata metadata_;
  std::vector<GgufFactors> factors_;
  int64_t heads_ = 0;
  int64_t key_value_heads_ = 0;
  int64_t experts_ = 0;
};

// What Gemma's scores are divided by the root of: llama.cpp knows one model of each generation
// whose size differs from a head's, by its layers.
double GemmaScalar(const GgufArchitecture& architecture, int64_t layers, int64_t width,
                   int64_t heads, int64_t head_dim);
// What Gemma 3 files leave unsaid: the base of the rotations of layers with a window.
inline constexpr double kGgufGemmaLocalBase = 10000;

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_NAMES_H_
