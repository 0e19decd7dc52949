// SPDX-License-Identifier: Apache-2.0
// T5's and mT5's configuration; fields are named as in Hugging Face's config.json.
#ifndef TESSERA_MODELS_T5_CONFIG_H_
#define TESSERA_MODELS_T5_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options_fwd.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct T5Config {
  int64_t vocab_size = 32128;
  int64_t d_model = 512;
  int64_t d_kv = 64;  // size of a head; d_kv * num_heads need not be d_model
  int64_t d_ff = 2048;
  int64_t num_layers = 6;          // of the encoder
  int64_t num_decoder_layers = 6;  // absent in the file: num_layers
  int64_t num_heads = 8;
  int64_t relative_attention_num_buckets = 32;
  int64_t relative_attention_max_distance = 128;
  double dropout_rate = 0.1;
  double layer_norm_epsilon = 1e-6;
  double initializer_factor = 1.0;
  // feed_forward_proj: "relu" (v1.0), "gated-gelu" (v1.1: with gelu_new), "gated-silu", ...;
  // is_gated_act and dense_act_fn, where they are there, count instead.
  bool gated = false;
  std::string dense_act = "relu";
  // v1.0: the head is the embedding, and its input is scaled by d_model^-0.5. Where the files do
  // not say scale_decoder_outputs (transformers 4), T5's follows tie_word_embeddings, and mT5's is
  // false.
  bool tie_word_embeddings = true;
  bool scale_decoder_outputs = true;
  int64_t pad_token_id = 0;
  int64_t decoder_start_token_id = 0;
  // "architectures" names T5EncoderModel (MT5EncoderModel): no decoder, no head.
  bool encoder_only = false;

  // Checks sizes; refuses by name what would change results and is not supported.
  static StatusOr<T5Config> FromJson(const nlohmann::json& json);
  static const OptionTable& Table();
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_T5_CONFIG_H_
