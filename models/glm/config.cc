// SPDX-License-Identifier: Apache-2.0
#include "models/glm/config.h"

#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "models/config_reader.h"

namespace tessera::models {
namespace {

using nlohmann::json;

bool Given(const json& object, const char* key) {
  return object.contains(key) && !object[key].is_null();
}

// Keys of another model that goes by the same model_type.
void RefuseOtherModel(const json& object, std::initializer_list<const char*> keys,
                      const std::string& meaning, ConfigReader* reader) {
  for (const char* key : keys) {
    reader->Require(!object.contains(key), Concat("'", key, "' belongs to ", meaning));
  }
}

void RefuseAnyValue(const json& object, const char* key, const char* meaning,
                    ConfigReader* reader) {
  if (!Given(object, key)) return;
  reader->Require(false,
                  Concat("'", key, "': ", object[key].dump(), " (", meaning, ") is not supported"));
}

void CheckArchitecture(const json& object, std::span<const char* const> supported,
                       ConfigReader* reader) {
  if (!object.contains("architectures") || !object["architectures"].is_array()) return;
  for (const json& name : object["architectures"]) {
    bool known = false;
    for (const char* s : supported) known = known || name == s;
    reader->Require(known, Concat("'architectures': ", name.dump(), " is not supported"));
  }
}

struct Size {
  const char* name;
  int64_t value;
  int64_t most;  // far beyond any model; keeps products of two sizes within 64 bits
};

void CheckSizes(std::initializer_list<Size> sizes, ConfigReader* reader) {
  for (const Size& size : sizes) {
    reader->Require(size.value > 0 && size.value < size.most,
                    Concat("'", size.name, "' is out of range: ", size.value));
  }
}

void CheckToken(const char* name, int64_t id, int64_t vocab_size, ConfigReader* reader) {
  reader->Require(id >= 0 && id < vocab_size,
                  Concat("'", name, "' (", id, ") is beyond the vocabulary of ", vocab_size));
}

}  // namespace

StatusOr<GlmConfig> GlmConfig::FromJson(const json& object) {
  GlmConfig c;
  ConfigReader reader(object, "glm");
  RefuseOtherModel(object,
                   {"partial_rotary_factor", "num_key_value_heads", "rope_theta", "rms_norm_eps",
                    "num_hidden_layers", "intermediate_size"},
                   "the later GLM-4, another model of the same model_type that is not supported",
                   &reader);
  CheckArchitecture(object, kGlmArchitectures, &reader);
  reader.Read("vocab_size", &c.vocab_size);
  reader.Read("hidden_size", &c.hidden_size);
  reader.Read("num_layers", &c.num_layers);
  reader.Read("num_attention_heads", &c.num_attention_heads);
  reader.Read("max_sequence_length", &c.max_sequence_length);
  reader.Read("embedding_dropout_prob", &c.embedding_dropout_prob);
  reader.Read("attention_dropout_prob", &c.attention_dropout_prob);
  reader.Read("output_dropout_prob", &c.output_dropout_prob);
  reader.ReadNotNegative("layernorm_epsilon", &c.layernorm_epsilon);
  reader.ReadNotNegative("initializer_range", &c.initializer_range);
  reader.Read("block_position_encoding", &c.block_position_encoding);
  const std::pair<const char*, std::optional<int64_t>*> tokens[] = {
      {"sop_token_id", &c.sop_token_id},
      {"eop_token_id", &c.eop_token_id},
      {"mask_token_id", &c.mask_token_id},
      {"smask_token_id", &c.smask_token_id},
      {"gmask_token_id", &c.gmask_token_id}};
  for (const auto& [name, id] : tokens) {
    reader.Read(name, id);
    if (*id) CheckToken(name, **id, c.vocab_size, &reader);
  }
  reader.Refuse("relative_encoding", false);
  reader.Refuse("max_memory_length", 0);
  reader.Refuse("tie_word_embeddings", true);
  RefuseAnyValue(object, "spell_length", "prompts that are learnt", &reader);
  // Divides and multiplies the scores again, against the overflow of half precision.
  double attention_scale = 1.0;
  reader.Read("attention_scale", &attention_scale);
  reader.Require(attention_scale > 0, "'attention_scale' is not above 0");
  CheckSizes({{"vocab_size", c.vocab_size, int64_t{1} << 31},
              {"hidden_size", c.hidden_size, 1 << 20},
              {"num_layers", c.num_layers, 10000},
              {"num_attention_heads", c.num_attention_heads, 1 << 16},
              {"max_sequence_length", c.max_sequence_length, int64_t{1} << 30}},
             &reader);
  if (reader.status().ok()) {
    reader.Require(c.hidden_size % c.num_attention_heads == 0,
                   Concat("'hidden_size' (", c.hidden_size, ") is not a multiple of ",
                          "'num_attention_heads' (", c.num_attention_heads, ")"));
  }
  for (const double p :
       {c.embedding_dropout_prob, c.attention_dropout_prob, c.output_dropout_prob}) {
    reader.Require(p >= 0 && p < 1, Concat("a dropout probability of ", p, " is not in [0, 1)"));
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  return c;
}

StatusOr<ChatGlmConfig> ChatGlmConfig::FromJson(const json& object) {
  ChatGlmConfig c;
  ConfigReader reader(object, "chatglm");
  RefuseOtherModel(object,
                   {"multi_query_attention", "ffn_hidden_size", "kv_channels", "padded_vocab_size",
                    "rmsnorm", "seq_length"},
                   "ChatGLM2 and ChatGLM3, other models of the same model_type that are not "
                   "supported",
                   &reader);
  CheckArchitecture(object, kChatGlmArchitectures, &reader);
  reader.Read("vocab_size", &c.vocab_size);
  reader.Read("hidden_size", &c.hidden_size);
  reader.Read("num_layers", &c.num_layers);
  reader.Read("num_attention_heads", &c.num_attention_heads);
  reader.Read("inner_hidden_size", &c.inner_hidden_size);
  reader.Read("max_sequence_length", &c.max_sequence_length);
  reader.ReadNotNegative("layernorm_epsilon", &c.layernorm_epsilon);
  reader.ReadNotNegative("initializer_range", &c.initializer_range);
  reader.Read("tie_word_embeddings", &c.tie_word_embeddings);
  reader.Refuse("position_encoding_2d", true);
  reader.Refuse("use_bias", true);
  reader.Refuse("quantization_bit", 0);
  RefuseAnyValue(object, "pre_seq_len", "prefix tuning", &reader);
  CheckSizes({{"vocab_size", c.vocab_size, int64_t{1} << 31},
              {"hidden_size", c.hidden_size, 1 << 20},
              {"num_layers", c.num_layers, 10000},
              {"num_attention_heads", c.num_attention_heads, 1 << 16},
              {"inner_hidden_size", c.inner_hidden_size, 1 << 24},
              {"max_sequence_length", c.max_sequence_length, int64_t{1} << 30}},
             &reader);
  if (reader.status().ok()) {
    // Each coordinate turns pairs of features in its half of a head.
    reader.Require(c.hidden_size % (4 * c.num_attention_heads) == 0,
                   Concat("'hidden_size' (", c.hidden_size, ") is not a multiple of 4 times ",
                          "'num_attention_heads' (", c.num_attention_heads, ")"));
  }
  const std::pair<const char*, int64_t*> tokens[] = {{"bos_token_id", &c.bos_token_id},
                                                     {"eos_token_id", &c.eos_token_id},
                                                     {"mask_token_id", &c.mask_token_id},
                                                     {"gmask_token_id", &c.gmask_token_id},
                                                     {"pad_token_id", &c.pad_token_id}};
  for (const auto& [name, id] : tokens) {
    reader.Read(name, id);
    CheckToken(name, *id, c.vocab_size, &reader);
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  return c;
}

}  // namespace tessera::models
