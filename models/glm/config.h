// SPDX-License-Identifier: Apache-2.0
// Configurations of GLM and ChatGLM-6B; fields are named as in the Hub's config.json.
#ifndef TESSERA_MODELS_GLM_CONFIG_H_
#define TESSERA_MODELS_GLM_CONFIG_H_

#include <array>
#include <cstdint>
#include <optional>

#include "base/options_fwd.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

// What config.json's `architectures` may say: one model, whatever it is used for.
inline constexpr std::array kGlmArchitectures = {"GLMForConditionalGeneration", "GLMModel",
                                                 "GLMForMultipleChoice"};
inline constexpr std::array kChatGlmArchitectures = {"ChatGLMModel",
                                                     "ChatGLMForConditionalGeneration"};

struct GlmConfig {
  int64_t vocab_size = 30592;
  int64_t hidden_size = 1024;
  int64_t num_layers = 24;
  int64_t num_attention_heads = 16;
  int64_t max_sequence_length = 512;
  double embedding_dropout_prob = 0.1;
  double attention_dropout_prob = 0.1;
  double output_dropout_prob = 0.1;
  double layernorm_epsilon = 1e-5;
  double initializer_range = 0.02;
  // Positions have a second coordinate, the place within the blank, and both tables one row more.
  bool block_position_encoding = true;
  // What generation needs to know of the vocabulary. The Hub's files leave it to the tokenizer.
  std::optional<int64_t> sop_token_id;   // <|startofpiece|>, before what fills a blank
  std::optional<int64_t> eop_token_id;   // <|endofpiece|>, behind it
  std::optional<int64_t> mask_token_id;  // [MASK], [sMASK] and [gMASK] are blanks
  std::optional<int64_t> smask_token_id;
  std::optional<int64_t> gmask_token_id;

  // Rows of each table of positions.
  int64_t position_rows() const { return max_sequence_length + (block_position_encoding ? 1 : 0); }

  // Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<GlmConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

// What a config.json of ChatGLM-6B says; the defaults are that model's.
struct ChatGlmConfig {
  int64_t vocab_size = 150528;
  int64_t hidden_size = 4096;
  int64_t num_layers = 28;
  int64_t num_attention_heads = 32;
  int64_t inner_hidden_size = 16384;
  int64_t max_sequence_length = 2048;
  double layernorm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  int64_t bos_token_id = 150004;
  int64_t eos_token_id = 150005;
  int64_t mask_token_id = 150000;
  int64_t gmask_token_id = 150001;
  int64_t pad_token_id = 0;

  static StatusOr<ChatGlmConfig> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_GLM_CONFIG_H_
