// SPDX-License-Identifier: Apache-2.0
#include "models/llama/config.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/llama/chatglm2.h"
#include "models/llama/types.h"
#include "models/rotary_keys.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"

namespace tessera::models {
namespace {

using nlohmann::json;

// Absent, and null, mean different things from type to type.
void ReadHeads(const json& json, const LlamaType& type, ConfigReader* reader, LlamaConfig* c) {
  const bool all = json.contains("num_key_value_heads") || type.groups_are_heads;
  if (all && !reader->Has("num_key_value_heads")) c->num_key_value_heads = c->num_attention_heads;
  reader->RequireMultiple("num_attention_heads", c->num_attention_heads, "num_key_value_heads",
                          c->num_key_value_heads);
  if (!reader->Has("head_dim") && type.divides_width && c->num_attention_heads > 0) {
    reader->RequireMultiple("hidden_size", c->hidden_size, "num_attention_heads",
                            c->num_attention_heads);
    c->head_dim = c->hidden_size / c->num_attention_heads;
  }
}

void ReadBiases(const LlamaType& type, ConfigReader* reader, LlamaConfig* c) {
  if (type.attention_bias) reader->Read("attention_bias", &c->qkv_bias);
  if (type.output_bias) c->output_bias = c->qkv_bias;
  if (type.mlp_bias) reader->Read("mlp_bias", &c->mlp_bias);
}

// SmolLM3's: a list of 0 for layers that do not rotate, or each n-th does not.
void ReadRotatingLayers(size_t layers, ConfigReader* reader, LlamaConfig* c) {
  int64_t interval = 4;
  std::vector<int64_t> listed;
  reader->Read("no_rope_layer_interval", &interval, {.least = 1});
  reader->Read("no_rope_layers", &listed);
  const bool named = reader->Has("no_rope_layers");
  reader->Require(!named || listed.size() >= layers,
                  Concat("'no_rope_layers' must be a list of ", layers, " numbers"));
  c->rotates.assign(layers, true);
  if (!reader->status().ok()) return;
  for (size_t i = 0; i < layers; ++i) {
    c->rotates[i] = named ? listed[i] != 0 : (static_cast<int64_t>(i) + 1) % interval != 0;
  }
}

void ReadWindows(const json& json, const LlamaType& type, size_t layers, ConfigReader* reader,
                 LlamaConfig* c) {
  c->windows.assign(layers, 0);
  if (type.windows == LlamaWindows::kNone) return;
  const bool none = json.contains("sliding_window") && json["sliding_window"].is_null();
  int64_t window = none ? 0 : type.window;
  // transformers 5 writes 0 for none, of models with experts.
  const bool may_be_zero = c->experts.num_experts > 0;
  reader->Read("sliding_window", &window,
               may_be_zero ? OptionNotes{.least = 0} : OptionNotes{.above = 0});
  const bool may_name = type.windows == LlamaWindows::kAllOrNamed;
  if (type.windows == LlamaWindows::kAll || (may_name && !reader->Has("layer_types"))) {
    c->windows.assign(layers, window);
    return;
  }
  const bool pattern = type.windows == LlamaWindows::kPattern;
  bool used = pattern || may_name;
  int64_t first = 28;
  int64_t period = type.window_period;
  if (!used) reader->Read("use_sliding_window", &used);
  if (type.windows == LlamaWindows::kQwen) reader->Read("max_window_layers", &first);
  if (type.name == "gemma3_text") reader->Read("sliding_window_pattern", &period, {.least = 1});
  const std::optional<std::vector<bool>> named = reader->ReadSlidingLayers(layers);
  // What transformers' versions make of it without names differs.
  reader->Require(named || !used || type.name != "qwen2_moe",
                  "'use_sliding_window' needs 'layer_types', which says of each layer what it is");
  // SmolLM3's layers slide where they are named so, used or not.
  if (named && type.windows == LlamaWindows::kNamed) used = true;
  for (size_t i = 0; i < layers && used; ++i) {
    const auto number = static_cast<int64_t>(i);
    const bool slides = type.windows == LlamaWindows::kAsked ? true
                        : named                              ? (*named)[i]
                        : pattern                            ? (number + 1) % period != 0
                        : c->rotates.empty()                 ? number >= first
                                                             : !c->rotates[i];
    if (slides) c->windows[i] = window;
  }
}

// What only Gemma has, and what of it is not supported. Null is no cap.
void ReadGemma(const json& json, const LlamaType& type, ConfigReader* reader, LlamaConfig* c) {
  c->hidden_act = type.defaults.hidden_act;  // transformers does not look at `hidden_act`
  reader->Read("hidden_activation", &c->hidden_act);
  reader->Read("query_pre_attn_scalar", &c->query_pre_attn_scalar, {.above = 0});
  const auto read_cap = [&](const char* key, double* cap) {
    if (json.contains(key) && json[key].is_null()) *cap = 0;
    reader->Read(key, cap, {.above = 0});
  };
  read_cap("final_logit_softcapping", &c->final_logit_softcapping);
  if (type.name == "gemma2") {
    read_cap("attn_logit_softcapping", &c->attn_logit_softcapping);
  } else {
    reader->Require(!reader->Has("attn_logit_softcapping"),
                    "'attn_logit_softcapping' is not supported");
  }
  bool both_ways = false;
  reader->Read("use_bidirectional_attention", &both_ways);
  reader->Require(!both_ways, "'use_bidirectional_attention' is not supported");
}

// As Phi-3's files have LongRoPE: by two older names, and for an absent length of before it.
json WithLongRope(json config) {
  for (const char* section : {"rope_scaling", "rope_parameters"}) {
    if (!config.contains(section) || !config[section].is_object()) continue;
    for (const char* key : {"type", "rope_type"}) {
      json& keys = config[section];
      if (keys.contains(key) && (keys[key] == "su" || keys[key] == "yarn")) keys[key] = "longrope";
    }
  }
  if (!config.contains("original_max_position_embeddings")) {
    config["original_max_position_embeddings"] = 4096;
  }
  return config;
}

// Frequencies of the layers that see everything and of those that slide.
Status ReadRotary(const json& json, const LlamaType& type, LlamaConfig* c) {
  const std::string family(type.name);
  RotaryDefaults defaults = {
      .base = type.rope_theta, .share = c->rotary.share, .reads_share = type.reads_rotary_share};
  if (c->local_rotary) defaults.layer_type = "full_attention";
  TESSERA_ASSIGN_OR_RETURN(const RotaryKeys rotary,
                           ReadRotaryKeys(family == "phi3" ? WithLongRope(json) : json, family,
                                          c->max_position_embeddings, defaults));
  const RotaryPairs pairs = c->rotary.pairs;
  c->rotary = rotary.config;
  c->rotary.pairs = pairs;
  c->max_positions = rotary.max_positions;
  // As in transformers, where of these types Phi3ForCausalLM alone drops its cache there.
  c->rereads_at_length_kind =
      family == "phi3" && c->rotary.scaling.kind == nn::RotaryScaling::kLongRope;
  if (!c->local_rotary) return OkStatus();
  defaults = {.base = 1e4, .layer_type = "sliding_attention", .base_key = "rope_local_base_freq"};
  TESSERA_ASSIGN_OR_RETURN(const RotaryKeys local,
                           ReadRotaryKeys(json, family, c->max_position_embeddings, defaults));
  c->local_rotary = local.config;
  return OkStatus();
}

}  // namespace

const OptionTable& LlamaConfig::Table() {
  using C = LlamaConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("Llama and its like")
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
               DropoutShare())
          .AddUnsupported({{"is_causal", true}}));
  return *table;
}

StatusOr<LlamaConfig> LlamaConfig::FromJson(const json& json) {
  const std::string model_type = json.value("model_type", "llama");
  if (model_type == "chatglm") return ChatGlm2FromJson(json);
  const LlamaType& type = LlamaTypeOf(model_type);
  const std::string name(type.name);
  LlamaConfig c = type.defaults;
  ConfigReader reader(json, name);
  reader.Read(&c);
  ReadHeads(json, type, &reader, &c);
  ReadBiases(type, &reader, &c);
  const auto layers = static_cast<size_t>(std::clamp<int64_t>(c.num_hidden_layers, 0, kMostLayers));
  const bool gemma = name == "gemma2" || name == "gemma3_text";
  if (gemma) ReadGemma(json, type, &reader, &c);
  if (name == "phi3") reader.Read("resid_pdrop", &c.resid_pdrop, DropoutShare());
  if (name == "smollm3") ReadRotatingLayers(layers, &reader, &c);
  if (c.experts.num_experts > 0) ReadExperts(name, layers, &reader, &c);
  ReadWindows(json, type, layers, &reader, &c);
  reader.ReadPaddingToken(c.vocab_size, &c.pad_token_id);
  reader.RequireOk(gemma ? "hidden_activation" : "hidden_act",
                   nn::FindActivation(c.hidden_act).status());
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_RETURN_IF_ERROR(ReadRotary(json, type, &c));
  try {
    (void)nn::RotaryFor(c.rotary, c.head_dim, 1);
    if (c.local_rotary) (void)nn::RotaryFor(*c.local_rotary, c.head_dim, 1);
  } catch (const Error& error) {
    return InvalidArgument("config of ", name, ": ", error.what());
  }
  return c;
}

}  // namespace tessera::models
