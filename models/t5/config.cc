// SPDX-License-Identifier: Apache-2.0
#include "models/t5/config.h"

#include "models/config_reader.h"
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

// transformers 5 ties always and says whether it scales; transformers 4 scales what it ties. mT5
// has never been scaled but for a tied one of transformers 4, which 5 reads as another model.
void ReadTies(const nlohmann::json& json, bool mt5, ConfigReader* reader, T5Config* c) {
  reader->Read("tie_word_embeddings", &c->tie_word_embeddings);
  c->scale_decoder_outputs = c->tie_word_embeddings && !mt5;
  reader->Read("scale_decoder_outputs", &c->scale_decoder_outputs);
  std::string version;
  reader->Read("transformers_version", &version);
  const bool says = json.contains("scale_decoder_outputs");
  reader->Require(
      !mt5 || says || !c->tie_word_embeddings || version.rfind("4.", 0) != 0,
      "'tie_word_embeddings': true scales the decoder's output in transformers 4 and not "
      "in 5; 'scale_decoder_outputs' must say which is meant");
}

}  // namespace

StatusOr<T5Config> T5Config::FromJson(const nlohmann::json& json) {
  T5Config c;
  const std::string type = json.at("model_type").get<std::string>();
  const bool mt5 = type == "mt5";
  if (mt5) SetMt5Defaults(&c);
  ConfigReader reader(json, type);
  reader.Read("vocab_size", &c.vocab_size);
  reader.Read("d_model", &c.d_model);
  reader.Read("d_kv", &c.d_kv);
  reader.Read("d_ff", &c.d_ff);
  reader.Read("num_layers", &c.num_layers);
  c.num_decoder_layers = c.num_layers;
  reader.Read("num_decoder_layers", &c.num_decoder_layers);
  reader.Read("num_heads", &c.num_heads);
  reader.Read("relative_attention_num_buckets", &c.relative_attention_num_buckets);
  reader.Read("relative_attention_max_distance", &c.relative_attention_max_distance);
  reader.Read("dropout_rate", &c.dropout_rate);
  reader.ReadNotNegative("layer_norm_epsilon", &c.layer_norm_epsilon);
  reader.ReadNotNegative("initializer_factor", &c.initializer_factor);
  ReadTies(json, mt5, &reader, &c);
  reader.Read("pad_token_id", &c.pad_token_id);
  c.decoder_start_token_id = c.pad_token_id;
  reader.Read("decoder_start_token_id", &c.decoder_start_token_id);
  std::string feed_forward = mt5 ? "gated-gelu" : "relu";
  reader.Read("feed_forward_proj", &feed_forward);
  const std::string gated = "gated-";
  c.gated = feed_forward.rfind(gated, 0) == 0;
  c.dense_act = c.gated ? feed_forward.substr(gated.size()) : feed_forward;
  if (c.gated && c.dense_act == "gelu") c.dense_act = "gelu_new";  // what v1.1 means by it
  reader.Refuse("is_encoder_decoder", true);
  // The limits are far beyond any model; they keep products of two sizes within 64 bits.
  struct Size {
    const char* name;
    int64_t value;
    int64_t most;
  };
  for (const Size& size :
       {Size{"vocab_size", c.vocab_size, int64_t{1} << 31},
        {"d_model", c.d_model, 1 << 20},
        {"d_kv", c.d_kv, 1 << 16},
        {"d_ff", c.d_ff, 1 << 24},
        {"num_layers", c.num_layers, 10000},
        {"num_decoder_layers", c.num_decoder_layers, 10000},
        {"num_heads", c.num_heads, 1 << 16},
        {"relative_attention_num_buckets", c.relative_attention_num_buckets, 1 << 20},
        {"relative_attention_max_distance", c.relative_attention_max_distance, 1 << 30}}) {
    reader.Require(size.value > 0 && size.value < size.most,
                   Concat("'", size.name, "' is out of range: ", size.value));
  }
  reader.Require(c.relative_attention_num_buckets % 4 == 0,
                 Concat("'relative_attention_num_buckets' (", c.relative_attention_num_buckets,
                        ") is not a multiple of 4"));
  reader.Require(c.relative_attention_max_distance > c.relative_attention_num_buckets / 2,
                 Concat("'relative_attention_max_distance' (", c.relative_attention_max_distance,
                        ") is not above half of 'relative_attention_num_buckets'"));
  reader.Require(c.dropout_rate >= 0 && c.dropout_rate < 1,
                 Concat("a dropout probability of ", c.dropout_rate, " is not in [0, 1)"));
  for (const auto& [name, id] : {std::pair{"pad_token_id", c.pad_token_id},
                                 {"decoder_start_token_id", c.decoder_start_token_id}}) {
    reader.Require(id >= 0 && id < c.vocab_size,
                   Concat("'", name, "' (", id, ") is beyond the vocabulary"));
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  TESSERA_RETURN_IF_ERROR(nn::FindActivation(c.dense_act).status());
  return c;
}

}  // namespace tessera::models
