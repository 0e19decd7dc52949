// SPDX-License-Identifier: Apache-2.0
// What GPT-2, Llama, Mistral, Qwen2, Qwen3 and Gemma 3 are called in GGUF files: their
// architectures there (gpt2, llama for both Llama and Mistral, qwen2, qwen3, gemma3),
// hyperparameters and tensors.
//
//   TESSERA_ASSIGN_OR_RETURN(const GgufNames names, GgufNames::Of(config_json));
//   names.metadata();                                            // "gpt2.block_count" and so on
//   names.PlaceOf("transformer.h.0.attn.c_attn.weight");         // "blk.0.attn_qkv.weight"
//   TESSERA_ASSIGN_OR_RETURN(const nlohmann::json config, ConfigOfGguf(file));
//
// What llama.cpp would compute otherwise is refused by the key of config.json: another activation,
// scaled attention, dynamic positions. Windows of attention, which it does not have for llama, are
// written.
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_NAMES_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/hub/gguf/gguf_file.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

struct LlamaConfig;

// Llama 3's frequencies, which GGUF files hold as a tensor, divided by what each pair of a head
// turns slower.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";

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
};

class GgufNames {
 public:
  // Of a config.json that its family accepts. InvalidArgument, with the key, for what GGUF cannot
  // say.
  static StatusOr<GgufNames> Of(const nlohmann::json& config);

  const std::string& architecture() const { return architecture_; }
  // The hyperparameters, without general.*.
  const GgufMetadata& metadata() const { return metadata_; }
  // kGgufRopeFactors; empty: the file has no such tensor.
  const std::vector<float>& rope_factors() const { return rope_factors_; }
  // nullopt for a parameter that these architectures do not have.
  std::optional<GgufPlace> PlaceOf(const std::string& parameter) const;

 private:
  Status TakeGpt(const nlohmann::json& config);
  Status TakeLlama(const nlohmann::json& config);
  Status TakeGemma(const LlamaConfig& config);
  Status TakeScaling(const LlamaConfig& config);
  void Add(std::string_view key, GgufValue value);

  std::string architecture_;
  GgufMetadata metadata_;
  std::vector<float> rope_factors_;
  int64_t heads_ = 0;
  int64_t key_value_heads_ = 0;
};

// The config.json of the model in a file, without what is known of its tokens. InvalidArgument with
// the key or the tensor.
StatusOr<nlohmann::json> ConfigOfGguf(const GgufFile& file);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_NAMES_H_
