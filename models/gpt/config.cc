// SPDX-License-Identifier: Apache-2.0
#include "models/gpt/config.h"

#include "models/config_reader.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"

namespace tessera::models {

const OptionTable& GptConfig::Table() {
  using C = GptConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("GPT-2")
          .Add("vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("n_positions", &C::n_positions, "the longest text, in tokens", SizeBelow(kMostRows))
          .Add("n_embd", &C::n_embd, "features of a token", SizeBelow(kMostWidth))
          .Add("n_layer", &C::n_layer, "layers", SizeBelow(kMostLayers))
          .Add("n_head", &C::n_head, "heads of attention", SizeBelow(kMostWidth))
          .Add("n_inner", &C::n_inner, "inner features of the feed-forward part",
               {.least = 1, .below = kMostInnerWidth, .unset = "4 n_embd"})
          .Add("activation_function", &C::activation_function, "of the feed-forward part")
          .Add("resid_pdrop", &C::resid_pdrop, "dropout on what a layer adds", DropoutShare())
          .Add("embd_pdrop", &C::embd_pdrop, "dropout on embeddings", DropoutShare())
          .Add("attn_pdrop", &C::attn_pdrop, "dropout on attention's weights", DropoutShare())
          .Add("layer_norm_epsilon", &C::layer_norm_epsilon, "added to variances", {.least = 0})
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("scale_attn_weights", &C::scale_attn_weights,
               "divides scores by the root of a head's size")
          .Add("scale_attn_by_inverse_layer_idx", &C::scale_attn_by_inverse_layer_idx,
               "divides scores by the number of the layer")
          .Add("tie_word_embeddings", &C::tie_word_embeddings, "the head is the embedding")
          .AddUnsupported({{"add_cross_attention", false}, {"is_causal", true}}));
  return *table;
}

StatusOr<GptConfig> GptConfig::FromJson(const nlohmann::json& json) {
  GptConfig c;
  ConfigReader reader(json, "gpt2");
  if (!reader.Has("n_positions")) reader.Read("n_ctx", &c.n_positions, SizeBelow(kMostRows));
  reader.Read(&c);
  // What transformers calls them in all models. Where a file has both names, this one counts.
  reader.Read("max_position_embeddings", &c.n_positions, SizeBelow(kMostRows));
  reader.Read("hidden_size", &c.n_embd, SizeBelow(kMostWidth));
  reader.Read("num_hidden_layers", &c.n_layer, SizeBelow(kMostLayers));
  reader.Read("num_attention_heads", &c.n_head, SizeBelow(kMostWidth));
  reader.RequireMultiple("n_embd", c.n_embd, "n_head", c.n_head);
  reader.RequireOk("activation_function", nn::FindActivation(c.activation_function).status());
  TESSERA_RETURN_IF_ERROR(reader.status());
  return c;
}

}  // namespace tessera::models
