// SPDX-License-Identifier: Apache-2.0
#include "models/llama/config.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/rotary_keys.h"
#include "nn/activation.h"

namespace tessera::models {
namespace {

using nlohmann::json;

// What absent keys mean, as transformers has it.
LlamaConfig DefaultsOf(const std::string& type) {
  LlamaConfig c;
  if (type == "mistral") {
    c.intermediate_size = 14336;
    c.num_key_value_heads = 8;
    c.max_position_embeddings = 131072;
  }
  if (type == "qwen2" || type == "qwen3") {
    c.vocab_size = 151936;
    c.intermediate_size = 22016;
    c.max_position_embeddings = 32768;
  }
  if (type == "gemma3_text") {
    c.vocab_size = 262208;
    c.hidden_size = 2304;
    c.intermediate_size = 9216;
    c.num_hidden_layers = 26;
    c.num_attention_heads = 8;
    c.num_key_value_heads = 4;
    c.head_dim = 256;
    c.hidden_act = "gelu_pytorch_tanh";
    c.max_position_embeddings = 131072;
    c.tie_word_embeddings = true;
    c.pad_token_id = 0;
    c.query_pre_attn_scalar = 256;
    c.scaled_embeddings = true;
    c.zero_centered_norms = true;
    c.norms_on_both_sides = true;
  }
  c.qkv_bias = type == "qwen2";
  c.has_head_norms = type == "qwen3" || type == "gemma3_text";
  return c;
}

// Absent, and null, mean different things from type to type.
void ReadHeads(const json& json, const std::string& type, ConfigReader* reader, LlamaConfig* c) {
  const bool all = json.contains("num_key_value_heads") || type == "llama";
  if (all && !reader->Has("num_key_value_heads")) c->num_key_value_heads = c->num_attention_heads;
  reader->RequireMultiple("num_attention_heads", c->num_attention_heads, "num_key_value_heads",
                          c->num_key_value_heads);
  if (!reader->Has("head_dim") && type != "qwen3" && type != "gemma3_text" &&
      c->num_attention_heads > 0) {
    reader->RequireMultiple("hidden_size", c->hidden_size, "num_attention_heads",
                            c->num_attention_heads);
    c->head_dim = c->hidden_size / c->num_attention_heads;
  }
}

// Llama has no window. Mistral has one for all layers. Qwen and Gemma have one for the layers that
// `layer_types` names. Without that key Qwen's layers have it from number `max_window_layers` on,
// and Gemma's all but each `sliding_window_pattern`-th.
void ReadWindows(const json& json, const std::string& type, ConfigReader* reader, LlamaConfig* c) {
  const auto layers = static_cast<size_t>(std::clamp<int64_t>(c->num_hidden_layers, 0, 10000));
  c->windows.assign(layers, 0);
  if (type == "llama") return;
  const bool none = json.contains("sliding_window") && json["sliding_window"].is_null();
  int64_t window = none ? 0 : 4096;
  reader->Read("sliding_window", &window, {.above = 0});
  if (type == "mistral") {
    c->windows.assign(layers, window);
    return;
  }
  const bool gemma = type == "gemma3_text";
  bool used = gemma;
  int64_t first = 28;
  int64_t pattern = 6;
  if (gemma) {
    reader->Read("sliding_window_pattern", &pattern, {.least = 1});
  } else {
    reader->Read("use_sliding_window", &used);
    reader->Read("max_window_layers", &first);
  }
  const std::optional<std::vector<bool>> named = reader->ReadSlidingLayers(layers);
  for (size_t i = 0; i < layers && used; ++i) {
    const auto number = static_cast<int64_t>(i);
    const bool slides = named ? (*named)[i] : gemma ? (number + 1) % pattern != 0 : number >= first;
    if (slides) c->windows[i] = window;
  }
}

// What only Gemma has, and what of it is not supported.
void ReadGemma(ConfigReader* reader, LlamaConfig* c) {
  reader->Read("hidden_activation", &c->hidden_act);
  reader->Read("query_pre_attn_scalar", &c->query_pre_attn_scalar, {.above = 0});
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    reader->Require(!reader->Has(key), Concat("'", key, "' is not supported"));
  }
  bool both_ways = false;
  reader->Read("use_bidirectional_attention", &both_ways);
  reader->Require(!both_ways, "'use_bidirectional_attention' is not supported");
}

// Frequencies of the layers that see everything and of those that slide.
Status ReadRotary(const json& json, const std::string& type, LlamaConfig* c) {
  const bool gemma = type == "gemma3_text";
  RotaryDefaults defaults;
  if (gemma) defaults = {.base = 1e6, .layer_type = "full_attention"};
  TESSERA_ASSIGN_OR_RETURN(const RotaryKeys rotary,
                           ReadRotaryKeys(json, type, c->max_position_embeddings, defaults));
  c->rotary = rotary.config;
  c->max_positions = rotary.max_positions;
  if (!gemma) return OkStatus();
  defaults = {.base = 1e4, .layer_type = "sliding_attention", .base_key = "rope_local_base_freq"};
  TESSERA_ASSIGN_OR_RETURN(const RotaryKeys local,
                           ReadRotaryKeys(json, type, c->max_position_embeddings, defaults));
  c->local_rotary = local.config;
  return OkStatus();
}

}  // namespace

const OptionTable& LlamaConfig::Table() {
  using C = LlamaConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("Llama, Mistral, Qwen2, Qwen3 and Gemma 3")
          .Add("vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("hidden_size", &C::hidden_size, "features of a token", SizeBelow(kMostWidth))
          .Add("intermediate_size", &C::intermediate_size,
               "inner features of the feed-forward part", SizeBelow(kMostInnerWidth))
          .Add("num_hidden_layers", &C::num_hidden_layers, "layers", SizeBelow(kMostLayers))
          .Add("num_attention_heads", &C::num_attention_heads, "heads of queries",
               SizeBelow(kMostWidth))
          .Add("num_key_value_heads", &C::num_key_value_heads, "heads of keys and values",
               SizeBelow(kMostWidth))
          .Add("head_dim", &C::head_dim, "features of a head", SizeBelow(kMostWidth))
          .Add("hidden_act", &C::hidden_act, "activation of the feed-forward part")
          .Add("max_position_embeddings", &C::max_position_embeddings,
               "the longest text, in tokens", SizeBelow(kMostRows))
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("rms_norm_eps", &C::rms_norm_eps, "added to mean squares", {.least = 0})
          .Add("tie_word_embeddings", &C::tie_word_embeddings, "the head is the embedding")
          .Add("has_lm_head", &C::has_lm_head, "false: a model of hidden states alone")
          .Add("attention_dropout", &C::attention_dropout, "dropout on attention's weights",
               DropoutShare()));
  return *table;
}

StatusOr<LlamaConfig> LlamaConfig::FromJson(const json& json) {
  const std::string type = json.value("model_type", "llama");
  LlamaConfig c = DefaultsOf(type);
  ConfigReader reader(json, type);
  reader.Read(&c);
  ReadHeads(json, type, &reader, &c);
  if (type == "llama" || type == "qwen3" || type == "gemma3_text") {
    reader.Read("attention_bias", &c.qkv_bias);
    c.output_bias = c.qkv_bias;
  }
  if (type == "llama") reader.Read("mlp_bias", &c.mlp_bias);
  if (type == "gemma3_text") ReadGemma(&reader, &c);
  ReadWindows(json, type, &reader, &c);
  reader.ReadPaddingToken(c.vocab_size, &c.pad_token_id);
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_RETURN_IF_ERROR(nn::FindActivation(c.hidden_act).status());
  TESSERA_RETURN_IF_ERROR(ReadRotary(json, type, &c));
  try {
    (void)nn::RotaryFor(c.rotary, c.head_dim, 1);
    if (c.local_rotary) (void)nn::RotaryFor(*c.local_rotary, c.head_dim, 1);
  } catch (const Error& error) {
    return InvalidArgument("config of ", type, ": ", error.what());
  }
  return c;
}

}  // namespace tessera::models
