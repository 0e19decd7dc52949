// SPDX-License-Identifier: Apache-2.0
// The architectures of GGUF files that are read and written, with what llama.cpp makes of each: its
// tensors' names, and what it cannot compute.
//
//   const GgufArchitecture* known = FindGgufArchitecture("olmo2");   // by config.json's model_type
//   known->name;                                                     // general.architecture
//   ModelTypesOfGguf("llama");                                       // llama's and mistral's rows
#ifndef TESSERA_MODELS_HUB_GGUF_GGUF_ARCHITECTURES_H_
#define TESSERA_MODELS_HUB_GGUF_GGUF_ARCHITECTURES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models {

// A tensor without ".weight" or ".bias", or with an end of its own. '#' is a layer's number. A
// second one, of ours alone, is an expert's: their tensor holds all experts of the layer.
struct GgufName {
  std::string_view ours;
  std::string_view theirs;
  bool transposed = false;  // GgufPlace::transposed, of weights
};

enum class GgufBiases { kNone, kQueries, kAll };  // kQueries: of queries, keys and values

// A mixture of experts (gguf_experts.h).
struct GgufExperts {
  std::string_view count_key = {};  // their number in config.json; empty: there are none
  bool has_width = false;           // of their own, apart from the dense layers'
  bool has_shared_width = false;    // one that all tokens share has its own, too
  bool normalised = true;           // a token's weights add up to 1, unless ...
  bool says_routing = false;        // ... keys say that, and which layers and groups have experts
};

struct GgufArchitecture {
  std::string_view name;        // general.architecture
  std::string_view model_type;  // and class, of config.json
  std::string_view class_name;
  std::span<const GgufName> names = {};  // before those that all but GPT-2 have
  GgufBiases biases = GgufBiases::kNone;
  // Rotated pairs are neighbours in the file, halves in the model.
  bool interleaves_heads = false;
  double added_to_norms = 0;
  bool heads_fill_width = false;  // head_dim * heads is hidden_size
  bool rotates_a_share = false;   // of a head
  bool has_window = false;        // one for all layers
  // 0: it must be what the family has.
  int64_t window_period = 0;  // where no key says of how many layers the last sees everything
  int64_t layers_of_27b = 0;  // of the model whose scores are scaled by hidden_size / heads
  bool needs_head = false;    // a head that is no copy of the embedding ...
  bool needs_tie = false;     // ... or one that is
  GgufExperts experts = {};
};

// nullptr for a type that GGUF files cannot hold.
const GgufArchitecture* FindGgufArchitecture(std::string_view model_type);
// Those of general.architecture; empty: it is not known.
std::vector<const GgufArchitecture*> ModelTypesOfGguf(std::string_view name);
// "gpt2, llama, ... and glm4moe".
std::string GgufArchitectureNames();

// Of a parameter's name with '#' for numbers, without its end or with it; nullptr: it has none.
const GgufName* FindGgufName(const GgufArchitecture& architecture, std::string_view ours);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_GGUF_GGUF_ARCHITECTURES_H_
