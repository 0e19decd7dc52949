// SPDX-License-Identifier: Apache-2.0
#include "models/llama/config.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/llama/rotary_keys.h"
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
  c.qkv_bias = type == "qwen2";
  c.has_head_norms = type == "qwen3";
  return c;
}

// Absent, and null, mean different things in the four.
void ReadHeads(const json& json, const std::string& type, ConfigReader* reader, LlamaConfig* c) {
  const bool all = json.contains("num_key_value_heads") || type == "llama";
  if (all && !reader->Has("num_key_value_heads")) c->num_key_value_heads = c->num_attention_heads;
  reader->RequireMultiple("num_attention_heads", c->num_attention_heads, "num_key_value_heads",
                          c->num_key_value_heads);
  if (!reader->Has("head_dim") && type != "qwen3" && c->num_attention_heads > 0) {
    reader->RequireMultiple("hidden_size", c->hidden_size, "num_attention_heads",
                            c->num_attention_heads);
    c->head_dim = c->hidden_size / c->num_attention_heads;
  }
}

// Negative ids count from the vocabulary's end, as PyTorch has it.
void ReadPadding(ConfigReader* reader, LlamaConfig* c) {
  std::optional<int64_t> id;
  reader->Read("pad_token_id", &id);
  if (!id) return;
  c->pad_token_id = *id < 0 ? c->vocab_size + *id : *id;
  reader->Require(
      c->pad_token_id >= 0 && c->pad_token_id < c->vocab_size,
      Concat("'pad_token_id' (", *id, ") is outside of the vocabulary (", c->vocab_size, ")"));
}

// Llama has none, Mistral one for all layers, Qwen's is of the layers that `layer_types` names, or
// of those from `max_window_layers` on.
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
  bool used = false;
  int64_t first = 28;
  reader->Read("use_sliding_window", &used);
  reader->Read("max_window_layers", &first);
  if (!reader->Has("layer_types")) {
    for (size_t i = 0; i < layers && used; ++i) {
      if (static_cast<int64_t>(i) >= first) c->windows[i] = window;
    }
    return;
  }
  const auto& types = json["layer_types"];
  reader->Require(types.is_array() && types.size() == layers,
                  Concat("'layer_types' must be a list of ", layers, " names"));
  if (!reader->status().ok()) return;
  for (size_t i = 0; i < layers; ++i) {
    const bool slides = types[i] == "sliding_attention";
    reader->Require(slides || types[i] == "full_attention",
                    Concat("'layer_types' has ", types[i].dump(),
                           ", expected full_attention or sliding_attention"));
    if (slides && used) c->windows[i] = window;
  }
}

}  // namespace

const OptionTable& LlamaConfig::Table() {
  using C = LlamaConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("Llama, Mistral, Qwen2 and Qwen3")
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
  if (type == "llama" || type == "qwen3") {
    reader.Read("attention_bias", &c.qkv_bias);
    c.output_bias = c.qkv_bias;
  }
  if (type == "llama") reader.Read("mlp_bias", &c.mlp_bias);
  ReadWindows(json, type, &reader, &c);
  ReadPadding(&reader, &c);
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_RETURN_IF_ERROR(nn::FindActivation(c.hidden_act).status());
  TESSERA_ASSIGN_OR_RETURN(const RotaryKeys rotary,
                           ReadRotaryKeys(json, type, c.max_position_embeddings));
  c.rotary = rotary.config;
  c.max_positions = rotary.max_positions;
  try {
    (void)nn::RotaryFor(c.rotary, c.head_dim, 1);
  } catch (const Error& error) {
    return InvalidArgument("config of ", type, ": ", error.what());
  }
  return c;
}

}  // namespace tessera::models
