// SPDX-License-Identifier: Apache-2.0
#include "models/gpt/config.h"

#include "models/config_reader.h"
#include "nn/activation.h"

namespace tessera::models {

StatusOr<GptConfig> GptConfig::FromJson(const nlohmann::json& json) {
  GptConfig c;
  ConfigReader reader(json, "gpt2");
  reader.Read("vocab_size", &c.vocab_size);
  reader.Read("n_ctx", &c.n_positions);  // older files; n_positions wins
  reader.Read("n_positions", &c.n_positions);
  reader.Read("n_embd", &c.n_embd);
  reader.Read("n_layer", &c.n_layer);
  reader.Read("n_head", &c.n_head);
  reader.Read("n_inner", &c.n_inner);
  reader.Read("activation_function", &c.activation_function);
  reader.Read("resid_pdrop", &c.resid_pdrop);
  reader.Read("embd_pdrop", &c.embd_pdrop);
  reader.Read("attn_pdrop", &c.attn_pdrop);
  reader.ReadNotNegative("layer_norm_epsilon", &c.layer_norm_epsilon);
  reader.ReadNotNegative("initializer_range", &c.initializer_range);
  reader.Read("scale_attn_weights", &c.scale_attn_weights);
  reader.Read("scale_attn_by_inverse_layer_idx", &c.scale_attn_by_inverse_layer_idx);
  reader.Read("tie_word_embeddings", &c.tie_word_embeddings);
  reader.Refuse("add_cross_attention", false);
  // The limits are far beyond any model; they keep products of two sizes within 64 bits.
  struct Size {
    const char* name;
    int64_t value;
    int64_t most;
  };
  for (const Size& size : {Size{"vocab_size", c.vocab_size, int64_t{1} << 31},
                           {"n_positions", c.n_positions, int64_t{1} << 31},
                           {"n_embd", c.n_embd, 1 << 20},
                           {"n_layer", c.n_layer, 10000},
                           {"n_head", c.n_head, 1 << 20},
                           {"n_inner", c.n_inner ? *c.n_inner : 1, 1 << 24}}) {
    reader.Require(size.value > 0 && size.value < size.most,
                   Concat("'", size.name, "' is out of range: ", size.value));
  }
  if (reader.status().ok()) {
    reader.Require(
        c.n_embd % c.n_head == 0,
        Concat("'n_embd' (", c.n_embd, ") is not a multiple of 'n_head' (", c.n_head, ")"));
  }
  for (const double p : {c.resid_pdrop, c.embd_pdrop, c.attn_pdrop}) {
    reader.Require(p >= 0 && p < 1, Concat("a dropout probability of ", p, " is not in [0, 1)"));
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_RETURN_IF_ERROR(nn::FindActivation(c.activation_function).status());
  return c;
}

}  // namespace tessera::models
