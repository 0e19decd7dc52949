// SPDX-License-Identifier: Apache-2.0
#include "models/modernbert/config.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/rotary_keys.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr char kFamily[] = "modernbert";

void ReadLayers(ConfigReader* reader, ModernBertConfig* c) {
  const auto layers = static_cast<size_t>(std::clamp<int64_t>(c->num_hidden_layers, 0, 10000));
  const std::optional<std::vector<bool>> named = reader->ReadSlidingLayers(layers);
  const int64_t every = std::max<int64_t>(1, c->global_attn_every_n_layers);
  c->slides.assign(layers, false);
  for (size_t i = 0; i < layers; ++i) {
    c->slides[i] = named ? (*named)[i] : static_cast<int64_t>(i) % every != 0;
  }
}

// The sparse head computes the tokens to be guessed alone; what it ignores is what every loss does.
void ReadSparsePrediction(ConfigReader* reader) {
  bool sparse = false;
  int64_t ignored = -100;
  reader->Read("sparse_prediction", &sparse);
  reader->Read("sparse_pred_ignore_index", &ignored);
  reader->Require(!sparse || ignored == -100,
                  Concat("'sparse_pred_ignore_index' (", ignored,
                         ") is not supported with 'sparse_prediction', only -100 is"));
}

// Version 5 of transformers has a section for each type of layer, and none for all.
Status CheckSections(const json& config) {
  const auto found = config.find("rope_parameters");
  if (found == config.end() || !found->is_object()) return OkStatus();
  for (const auto& [key, value] : found->items()) {
    if (key == "full_attention" || key == "sliding_attention") continue;
    return InvalidArgument("config of ", kFamily, ": 'rope_parameters.", key,
                           "' is not supported; its sections are full_attention and "
                           "sliding_attention");
  }
  return OkStatus();
}

Status ReadRotary(const json& config, ModernBertConfig* c) {
  TESSERA_RETURN_IF_ERROR(CheckSections(config));
  const auto read = [&](const char* layer_type, const char* base_key, double base) {
    return ReadRotaryKeys(
        config, kFamily, c->max_position_embeddings,
        {.base = base, .layer_type = layer_type, .base_key = base_key, .one_section = true});
  };
  TESSERA_ASSIGN_OR_RETURN(const RotaryKeys global,
                           read("full_attention", "global_rope_theta", 160000));
  // Null, as version 4 has it, is the other layers' base.
  const auto local_base = config.find("local_rope_theta");
  const bool same = local_base != config.end() && local_base->is_null();
  TESSERA_ASSIGN_OR_RETURN(const RotaryKeys local, read("sliding_attention", "local_rope_theta",
                                                        same ? global.config.base : 10000));
  c->rotary = global.config;
  c->local_rotary = local.config;
  c->max_positions = global.max_positions;
  return OkStatus();
}

}  // namespace

const OptionTable& ModernBertConfig::Table() {
  using C = ModernBertConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("ModernBERT")
          .Add("vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("hidden_size", &C::hidden_size, "features of a token", SizeBelow(kMostWidth))
          .Add("intermediate_size", &C::intermediate_size,
               "inner features of the feed-forward part", SizeBelow(kMostInnerWidth))
          .Add("num_hidden_layers", &C::num_hidden_layers, "layers", SizeBelow(kMostLayers))
          .Add("num_attention_heads", &C::num_attention_heads, "heads of attention",
               SizeBelow(kMostWidth))
          .Add("hidden_activation", &C::hidden_activation, "activation of the feed-forward part")
          .Add("max_position_embeddings", &C::max_position_embeddings,
               "the longest text, in tokens", SizeBelow(kMostRows))
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("initializer_cutoff_factor", &C::initializer_cutoff_factor,
               "first weights are drawn within so many standard deviations", {.least = 0.1})
          .Add("norm_eps", &C::norm_eps, "added to variances", {.least = 0})
          .Add("norm_bias", &C::norm_bias, "norms have a bias")
          .Add("attention_bias", &C::attention_bias, "the projections of attention have biases")
          .Add("attention_dropout", &C::attention_dropout,
               "dropout on attention's weights and on what it adds", DropoutShare())
          .Add("global_attn_every_n_layers", &C::global_attn_every_n_layers,
               "each such layer, from the first, sees all tokens", {.least = 1})
          .Add("local_attention", &C::local_attention,
               "tokens that the other layers see, half of them to each side",
               {.least = 0, .below = kMostRows})
          .Add("embedding_dropout", &C::embedding_dropout, "dropout on embeddings", DropoutShare())
          .Add("mlp_bias", &C::mlp_bias, "the feed-forward part has biases")
          .Add("mlp_dropout", &C::mlp_dropout, "dropout on inner features", DropoutShare())
          .Add("decoder_bias", &C::decoder_bias, "the logits of words have a bias")
          .Add("classifier_pooling", &C::classifier_pooling,
               "what of a text a classifier reads: cls, the first token, or the mean")
          .Add("classifier_dropout", &C::classifier_dropout, "dropout before the classifier",
               DropoutShare())
          .Add("classifier_bias", &C::classifier_bias,
               "the dense layer before a head's result has a bias")
          .Add("classifier_activation", &C::classifier_activation, "activation of that layer")
          .Add("tie_word_embeddings", &C::tie_word_embeddings, "the head is the embedding")
          .AddUnsupported({{"rope_theta", nullptr}, {"sliding_window", nullptr}}));
  return *table;
}

StatusOr<ModernBertConfig> ModernBertConfig::FromJson(const json& json) {
  ModernBertConfig c;
  ConfigReader reader(json, kFamily);
  reader.Read(&c);
  if (json.contains("initializer_cutoff_factor") && !reader.Has("initializer_cutoff_factor")) {
    c.initializer_cutoff_factor = 3;
  }
  reader.RequireMultiple("hidden_size", c.hidden_size, "num_attention_heads",
                         c.num_attention_heads);
  reader.ReadPaddingToken(c.vocab_size, &c.pad_token_id);
  reader.Require(c.classifier_pooling == "cls" || c.classifier_pooling == "mean",
                 Concat("'classifier_pooling': \"", c.classifier_pooling,
                        "\" is not known, expected cls or mean"));
  ReadLayers(&reader, &c);
  ReadSparsePrediction(&reader);
  std::vector<std::string> names;
  for (const ModernBertArchitecture& known : kModernBertArchitectures) names.push_back(known.name);
  c.head = kModernBertArchitectures[reader.ReadArchitecture(names)].head;
  reader.RequireOk("hidden_activation", nn::FindActivation(c.hidden_activation).status());
  reader.RequireOk("classifier_activation", nn::FindActivation(c.classifier_activation).status());
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_ASSIGN_OR_RETURN(c.labels, LabelSpec::FromJson(json, kFamily));
  TESSERA_RETURN_IF_ERROR(ReadRotary(json, &c));
  try {
    const int64_t head_dim = c.hidden_size / c.num_attention_heads;
    (void)nn::RotaryFor(c.rotary, head_dim, 1);
    (void)nn::RotaryFor(c.local_rotary, head_dim, 1);
  } catch (const Error& error) {
    return InvalidArgument("config of ", kFamily, ": ", error.what());
  }
  return c;
}

}  // namespace tessera::models
