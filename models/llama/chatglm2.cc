// SPDX-License-Identifier: Apache-2.0
#include "models/llama/chatglm2.h"

#include <algorithm>

#include "models/config_reader.h"
#include "models/llama/types.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// The keys, into the fields of LlamaConfig where there is one.
struct ChatGlm2Keys : LlamaConfig {
  bool multi_query_attention = false;
  int64_t multi_query_group_num = 1;
  bool add_bias_linear = false;
  bool add_qkv_bias = false;
  double rope_ratio = 1;

  static const OptionTable& Table();
};

const OptionTable& ChatGlm2Keys::Table() {
  using C = ChatGlm2Keys;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("ChatGLM2, ChatGLM3 and GLM-4")
          .Add("padded_vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("hidden_size", &C::hidden_size, "features of a token", SizeBelow(kMostWidth))
          .Add("ffn_hidden_size", &C::intermediate_size, "inner features of the feed-forward part",
               SizeBelow(kMostInnerWidth))
          .Add("num_layers", &C::num_hidden_layers, "layers", SizeBelow(kMostLayers))
          .Add("num_attention_heads", &C::num_attention_heads, "heads of queries",
               SizeBelow(kMostWidth))
          .Add("multi_query_attention", &C::multi_query_attention,
               "heads of queries share heads of keys and values")
          .Add("multi_query_group_num", &C::multi_query_group_num, "heads of keys and values",
               SizeBelow(kMostWidth))
          .Add("kv_channels", &C::head_dim, "features of a head", SizeBelow(kMostWidth))
          .Add("seq_length", &C::max_position_embeddings, "the longest text, in tokens",
               SizeBelow(kMostRows))
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("layernorm_epsilon", &C::rms_norm_eps, "added to mean squares", {.least = 0})
          .Add("tie_word_embeddings", &C::tie_word_embeddings, "the head is the embedding")
          .Add("attention_dropout", &C::attention_dropout, "dropout on attention's weights",
               DropoutShare())
          .Add("hidden_dropout", &C::resid_pdrop, "dropout on what a layer adds", DropoutShare())
          .Add("add_bias_linear", &C::add_bias_linear, "linear layers have biases")
          .Add("add_qkv_bias", &C::add_qkv_bias, "the projection to q, k and v has one")
          .Add("rope_ratio", &C::rope_ratio, "the rotations' base, in units of 10000",
               {.least = 1e-4})
          .AddUnsupported({{"rmsnorm", true},
                           {"post_layer_norm", true},
                           {"original_rope", true},
                           {"apply_residual_connection_post_layernorm", false},
                           {"fp32_residual_connection", false},
                           {"quantization_bit", 0},
                           {"pre_seq_len", nullptr}}));  // prefix tuning
  return *table;
}

LlamaNames Names() {
  LlamaNames names;
  names.decoder = "transformer";
  names.embedding = "embedding.word_embeddings";
  names.layers = "encoder.layers";
  names.norm = "encoder.final_layernorm";
  names.head = "transformer.output_layer";
  names.attention = "self_attention";
  names.qkv = {"query_key_value"};
  names.output = "dense";
  names.gate = names.up = "dense_h_to_4h";
  names.down = "dense_4h_to_h";
  return names;
}

}  // namespace

bool IsChatGlm2(const json& object) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"multi_query_attention", "ffn_hidden_size", "kv_channels",
                                         "padded_vocab_size", "rmsnorm", "seq_length"},
      [&](const char* key) { return object.contains(key); });
}

StatusOr<LlamaConfig> ChatGlm2FromJson(const json& object) {
  ChatGlm2Keys c;
  static_cast<LlamaConfig&>(c) = LlamaTypeOf("glm").defaults;
  c.vocab_size = 65024;
  c.num_hidden_layers = 28;
  c.max_position_embeddings = 2048;
  c.rms_norm_eps = 1e-5;
  c.pad_token_id = -1;
  c.names = Names();
  ConfigReader reader(object, "chatglm");
  reader.Read(&c);
  reader.Require(c.multi_query_attention, "'multi_query_attention' must be true");
  c.num_key_value_heads = c.multi_query_group_num;
  reader.RequireMultiple("num_attention_heads", c.num_attention_heads, "multi_query_group_num",
                         c.num_key_value_heads);
  reader.Require(c.head_dim % 4 == 0,
                 Concat("'kv_channels' (", c.head_dim, ") is not a multiple of 4"));
  TESSERA_RETURN_IF_ERROR(reader.status());
  c.qkv_bias = c.add_qkv_bias || c.add_bias_linear;
  c.output_bias = c.mlp_bias = c.add_bias_linear;
  c.rotary.base = 10000 * c.rope_ratio;
  c.max_positions = c.max_position_embeddings;
  c.windows.assign(static_cast<size_t>(c.num_hidden_layers), 0);
  return c;
}

}  // namespace tessera::models
