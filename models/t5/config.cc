// SPDX-License-Identifier: Apache-2.0
#include "models/t5/config.h"

#include "models/config_reader.h"
#include "nlohmann/json.hpp"
#include "nn/activation.h"

namespace tessera::models {
namespace {

// What is absent from mT5's files; the rest is as T5's.
void SetMt5Defaults(T5Config* c) {
  c->vocab_size = 250112;
  c->d_ff = 1024;
  c->num_layers = 8;
  c->num_heads = 6;
}

bool NamesEncoder(const nlohmann::json& json) {
  const auto names = json.find("architectures");
  return names != json.end() && names->is_array() && !names->empty() && (*names)[0].is_string() &&
         (*names)[0].get<std::string>().ends_with("EncoderModel");
}

// transformers 5 ties always and says whether it scales; transformers 4 scales what it ties. mT5
// has never been scaled but for a tied one of transformers 4, which 5 reads as another model.
void ReadTies(const nlohmann::json& json, bool mt5, ConfigReader* reader, T5Config* c) {
  c->scale_decoder_outputs = c->tie_word_embeddings && !mt5;
  reader->Read("scale_decoder_outputs", &c->scale_decoder_outputs);
  std::string version;
  reader->Read("transformers_version", &version);
  const bool says = json.contains("scale_decoder_outputs");
  reader->Require(
      !mt5 || says || c->encoder_only || !c->tie_word_embeddings || version.rfind("4.", 0) != 0,
      "'tie_word_embeddings': true scales the decoder's output in transformers 4 and not "
      "in 5; 'scale_decoder_outputs' must say which is meant");
}

}  // namespace

const OptionTable& T5Config::Table() {
  using C = T5Config;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("T5 and mT5")
          .Add("vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("d_model", &C::d_model, "features of a token", SizeBelow(kMostWidth))
          .Add("d_kv", &C::d_kv, "features of a head", SizeBelow(kMostWidth))
          .Add("d_ff", &C::d_ff, "inner features of the feed-forward part",
               SizeBelow(kMostInnerWidth))
          .Add("num_layers", &C::num_layers, "layers of the encoder", SizeBelow(kMostLayers))
          .Add("num_heads", &C::num_heads, "heads of attention", SizeBelow(kMostWidth))
          .Add("relative_attention_num_buckets", &C::relative_attention_num_buckets,
               "classes of distances", SizeBelow(kMostWidth))
          .Add("relative_attention_max_distance", &C::relative_attention_max_distance,
               "distances from here on are one class", SizeBelow(kMostRows / 2))
          .Add("dropout_rate", &C::dropout_rate, "dropout", DropoutShare())
          .Add("layer_norm_epsilon", &C::layer_norm_epsilon, "added to variances", {.least = 0})
          .Add("initializer_factor", &C::initializer_factor, "multiplies first weights",
               {.least = 0})
          .Add("tie_word_embeddings", &C::tie_word_embeddings, "the head is the embedding")
          .Add("pad_token_id", &C::pad_token_id, "id of the token that fills rows")
          .AddUnsupported({{"is_causal", true}}));
  return *table;
}

StatusOr<T5Config> T5Config::FromJson(const nlohmann::json& json) {
  T5Config c;
  const std::string type = json.at("model_type").get<std::string>();
  const bool mt5 = type == "mt5";
  if (mt5) SetMt5Defaults(&c);
  ConfigReader reader(json, type);
  reader.Read(&c);
  c.encoder_only = NamesEncoder(json);
  bool has_decoder = true;
  reader.Read("is_encoder_decoder", &has_decoder);
  reader.Require(has_decoder || c.encoder_only, "'is_encoder_decoder': false is not supported");
  ReadTies(json, mt5, &reader, &c);
  c.num_decoder_layers = c.num_layers;
  reader.Read("num_decoder_layers", &c.num_decoder_layers, SizeBelow(kMostLayers));
  // What transformers calls them in all models. Where a file has both names, this one counts.
  reader.Read("hidden_size", &c.d_model, SizeBelow(kMostWidth));
  reader.Read("head_dim", &c.d_kv, SizeBelow(kMostWidth));
  reader.Read("num_hidden_layers", &c.num_layers, SizeBelow(kMostLayers));
  reader.Read("num_attention_heads", &c.num_heads, SizeBelow(kMostWidth));
  c.decoder_start_token_id = c.pad_token_id;
  reader.Read("decoder_start_token_id", &c.decoder_start_token_id);
  std::string feed_forward = mt5 ? "gated-gelu" : "relu";
  reader.Read("feed_forward_proj", &feed_forward);
  const std::string gated = "gated-";
  c.gated = feed_forward.rfind(gated, 0) == 0;
  c.dense_act = c.gated ? feed_forward.substr(gated.size()) : feed_forward;
  if (c.gated && c.dense_act == "gelu") c.dense_act = "gelu_new";  // what v1.1 means by it
  // transformers writes what it makes of it, too, and reads that afterwards.
  reader.Read("is_gated_act", &c.gated);
  reader.Read("dense_act_fn", &c.dense_act);
  reader.RequireOk(reader.Has("dense_act_fn") ? "dense_act_fn" : "feed_forward_proj",
                   nn::FindActivation(c.dense_act).status());
  reader.Require(c.relative_attention_num_buckets % 4 == 0,
                 Concat("'relative_attention_num_buckets' (", c.relative_attention_num_buckets,
                        ") is not a multiple of 4"));
  reader.Require(c.relative_attention_max_distance > c.relative_attention_num_buckets / 2,
                 Concat("'relative_attention_max_distance' (", c.relative_attention_max_distance,
                        ") is not above half of 'relative_attention_num_buckets'"));
  reader.RequireToken("pad_token_id", c.pad_token_id, c.vocab_size);
  reader.RequireToken("decoder_start_token_id", c.decoder_start_token_id, c.vocab_size);
  TESSERA_RETURN_IF_ERROR(reader.status());
  return c;
}

}  // namespace tessera::models
