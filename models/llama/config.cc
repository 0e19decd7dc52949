// SPDX-License-Identifier: Apache-2.0
#include "models/llama/config.h"

#include <algorithm>

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

bool Has(const json& object, const char* key) {
  return object.contains(key) && !object[key].is_null();
}

// Absent, and null, mean different things in the four.
void ReadHeads(const json& json, const std::string& type, ConfigReader* reader, LlamaConfig* c) {
  const bool all = json.contains("num_key_value_heads") || type == "llama";
  if (all) c->num_key_value_heads = c->num_attention_heads;
  reader->Read("num_key_value_heads", &c->num_key_value_heads);
  reader->Require(
      c->num_attention_heads > 0 && c->num_key_value_heads > 0 &&
          c->num_attention_heads % c->num_key_value_heads == 0,
      Concat("'num_attention_heads' (", c->num_attention_heads,
             ") is not a multiple of 'num_key_value_heads' (", c->num_key_value_heads, ")"));
  if (Has(json, "head_dim")) {
    reader->Read("head_dim", &c->head_dim);
  } else if (type != "qwen3" && c->num_attention_heads > 0) {
    reader->Require(
        c->hidden_size % c->num_attention_heads == 0,
        Concat("'hidden_size' (", c->hidden_size, ") is not a multiple of 'num_attention_heads' (",
               c->num_attention_heads, ")"));
    c->head_dim = c->hidden_size / c->num_attention_heads;
  }
}

// Negative ids count from the vocabulary's end, as PyTorch has it.
void ReadPadding(const json& json, ConfigReader* reader, LlamaConfig* c) {
  if (!Has(json, "pad_token_id")) return;
  int64_t id = 0;
  reader->Read("pad_token_id", &id);
  c->pad_token_id = id < 0 ? c->vocab_size + id : id;
  reader->Require(
      c->pad_token_id >= 0 && c->pad_token_id < c->vocab_size,
      Concat("'pad_token_id' (", id, ") is outside of the vocabulary (", c->vocab_size, ")"));
}

// Llama has none, Mistral one for all layers, Qwen's is of the layers that `layer_types` names, or
// of those from `max_window_layers` on.
void ReadWindows(const json& json, const std::string& type, ConfigReader* reader, LlamaConfig* c) {
  const auto layers = static_cast<size_t>(std::clamp<int64_t>(c->num_hidden_layers, 0, 10000));
  c->windows.assign(layers, 0);
  if (type == "llama") return;
  const bool none = json.contains("sliding_window") && json["sliding_window"].is_null();
  int64_t window = none ? 0 : 4096;
  reader->Read("sliding_window", &window);
  reader->Require(none || window > 0, Concat("'sliding_window' must be above 0, not ", window));
  if (type == "mistral") {
    c->windows.assign(layers, window);
    return;
  }
  bool used = false;
  int64_t first = 28;
  reader->Read("use_sliding_window", &used);
  reader->Read("max_window_layers", &first);
  if (!Has(json, "layer_types")) {
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

StatusOr<LlamaConfig> LlamaConfig::FromJson(const json& json) {
  const std::string type = json.value("model_type", "llama");
  LlamaConfig c = DefaultsOf(type);
  ConfigReader reader(json, type);
  reader.Read("vocab_size", &c.vocab_size);
  reader.Read("hidden_size", &c.hidden_size);
  reader.Read("intermediate_size", &c.intermediate_size);
  reader.Read("num_hidden_layers", &c.num_hidden_layers);
  reader.Read("num_attention_heads", &c.num_attention_heads);
  ReadHeads(json, type, &reader, &c);
  reader.Read("hidden_act", &c.hidden_act);
  reader.Read("max_position_embeddings", &c.max_position_embeddings);
  reader.ReadNotNegative("initializer_range", &c.initializer_range);
  reader.ReadNotNegative("rms_norm_eps", &c.rms_norm_eps);
  reader.Read("tie_word_embeddings", &c.tie_word_embeddings);
  reader.Read("attention_dropout", &c.attention_dropout);
  if (type == "llama" || type == "qwen3") {
    reader.Read("attention_bias", &c.qkv_bias);
    c.output_bias = c.qkv_bias;
  }
  if (type == "llama") reader.Read("mlp_bias", &c.mlp_bias);
  ReadWindows(json, type, &reader, &c);
  // The limits are far beyond any model; they keep products of two sizes within 64 bits.
  struct Size {
    const char* name;
    int64_t value;
    int64_t most;
  };
  for (const Size& size :
       {Size{"vocab_size", c.vocab_size, int64_t{1} << 31},
        {"hidden_size", c.hidden_size, 1 << 20},
        {"intermediate_size", c.intermediate_size, 1 << 24},
        {"num_hidden_layers", c.num_hidden_layers, 10000},
        {"num_attention_heads", c.num_attention_heads, 1 << 20},
        {"head_dim", c.head_dim, 1 << 20},
        {"max_position_embeddings", c.max_position_embeddings, int64_t{1} << 31}}) {
    reader.Require(size.value > 0 && size.value < size.most,
                   Concat("'", size.name, "' is out of range: ", size.value));
  }
  reader.Require(c.attention_dropout >= 0 && c.attention_dropout < 1,
                 Concat("'attention_dropout': ", c.attention_dropout, " is not in [0, 1)"));
  ReadPadding(json, &reader, &c);
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
