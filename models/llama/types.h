// SPDX-License-Identifier: Apache-2.0
// The types of configurations ("model_type") that models/llama reads, each with what its absent
// keys mean, as transformers has it, and which keys it knows.
#ifndef TESSERA_MODELS_LLAMA_TYPES_H_
#define TESSERA_MODELS_LLAMA_TYPES_H_

#include <string>
#include <string_view>
#include <vector>

#include "models/llama/config.h"

namespace tessera::models {

// Which layers have a window of `sliding_window` tokens.
enum class LlamaWindows {
  kNone,
  kAll,
  kAllOrNamed,  // those of `layer_types`, or all
  kAsked,       // all, with `use_sliding_window`
  kNamed,       // those of `layer_types`, with `use_sliding_window`
  kQwen,        // the same; without `layer_types` from number `max_window_layers` on
  kPattern,     // those of `layer_types`, or all but every n-th
};

struct LlamaType {
  std::string_view name;  // "model_type"
  LlamaConfig defaults = {};
  // Absent, num_key_value_heads is num_attention_heads, and head_dim hidden_size by that; else
  // they are the defaults'.
  bool groups_are_heads = false;
  bool divides_width = true;
  LlamaWindows windows = LlamaWindows::kNone;
  int64_t window = 4096;        // where `sliding_window` is absent
  int64_t window_period = 0;    // of kPattern
  bool attention_bias = false;  // knows the key, for q, k and v ...
  bool output_bias = false;     // ... and o_proj
  bool mlp_bias = false;        // knows the key
  double rope_theta = 1e4;
  bool reads_rotary_share = false;  // knows `partial_rotary_factor`
};

// Throws Error for another type.
const LlamaType& LlamaTypeOf(std::string_view model_type);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_LLAMA_TYPES_H_
