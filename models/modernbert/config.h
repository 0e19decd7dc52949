// SPDX-License-Identifier: Apache-2.0
// ModernBERT's configuration; fields are named as in Hugging Face's config.json.
#ifndef TESSERA_MODELS_MODERNBERT_CONFIG_H_
#define TESSERA_MODELS_MODERNBERT_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "models/classification.h"
#include "nlohmann/json_fwd.hpp"
#include "nn/rotary.h"

namespace tessera::models {

// What is on the encoder; config.json's `architectures` says it (ModernBertForMaskedLM, ...).
enum class ModernBertHead { kMaskedLm, kNone, kSequence, kTokens };

// A head by the name of its class.
struct ModernBertArchitecture {
  const char* name;
  ModernBertHead head;
};
inline constexpr ModernBertArchitecture kModernBertArchitectures[] = {
    {"ModernBertForMaskedLM", ModernBertHead::kMaskedLm},
    {"ModernBertModel", ModernBertHead::kNone},
    {"ModernBertForSequenceClassification", ModernBertHead::kSequence},
    {"ModernBertForTokenClassification", ModernBertHead::kTokens},
};

// What a config.json says; defaults are ModernBERT-base's.
struct ModernBertConfig {
  ModernBertHead head = ModernBertHead::kMaskedLm;
  int64_t vocab_size = 50368;
  int64_t hidden_size = 768;
  int64_t intermediate_size = 1152;
  int64_t num_hidden_layers = 22;
  int64_t num_attention_heads = 12;
  std::string hidden_activation = "gelu";
  int64_t max_position_embeddings = 8192;
  double initializer_range = 0.02;
  double initializer_cutoff_factor = 2.0;  // null: 3
  double norm_eps = 1e-5;
  bool norm_bias = false;
  int64_t pad_token_id = 50283;  // its embedding is not trained; -1: none
  bool attention_bias = false;
  double attention_dropout = 0;
  // Without `layer_types`: each such layer, from the first, sees all tokens.
  int64_t global_attn_every_n_layers = 3;
  int64_t local_attention = 128;  // a token of the others sees half as many to each side of it
  double embedding_dropout = 0;
  bool mlp_bias = false;
  double mlp_dropout = 0;
  bool decoder_bias = true;
  std::string classifier_pooling = "cls";  // of the first token, or the "mean"
  double classifier_dropout = 0;
  bool classifier_bias = false;  // of the prediction head's dense layer
  std::string classifier_activation = "gelu";
  bool tie_word_embeddings = true;

  std::vector<bool> slides = {};  // of each layer: whether it sees its neighbourhood alone
  // global_rope_theta and local_rope_theta, or rope_parameters.
  nn::RotaryConfig rotary = {};
  nn::RotaryConfig local_rotary = {};
  int64_t max_positions = 8192;  // max_position_embeddings, or what its scaling extends that to
  LabelSpec labels = {};

  // Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<ModernBertConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_MODERNBERT_CONFIG_H_
