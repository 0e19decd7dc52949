// SPDX-License-Identifier: Apache-2.0
#include "models/glm/config.h"

#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "models/config_reader.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

void CheckArchitecture(const json& object, std::span<const char* const> supported,
                       ConfigReader* reader) {
  if (!object.contains("architectures") || !object["architectures"].is_array()) return;
  for (const json& name : object["architectures"]) {
    bool known = false;
    for (const char* s : supported) known = known || name == s;
    reader->Require(known, Concat("'architectures': ", name.dump(), " is not supported"));
  }
}

}  // namespace

const OptionTable& GlmConfig::Table() {
  using C = GlmConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("GLM")
          .Add("vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("hidden_size", &C::hidden_size, "features of a token", SizeBelow(kMostWidth))
          .Add("num_layers", &C::num_layers, "layers", SizeBelow(kMostLayers))
          .Add("num_attention_heads", &C::num_attention_heads, "heads of attention",
               SizeBelow(kMostWidth))
          .Add("max_sequence_length", &C::max_sequence_length, "the longest text, in tokens",
               SizeBelow(kMostRows / 2))
          .Add("embedding_dropout_prob", &C::embedding_dropout_prob, "dropout on embeddings",
               DropoutShare())
          .Add("attention_dropout_prob", &C::attention_dropout_prob,
               "dropout on attention's weights", DropoutShare())
          .Add("output_dropout_prob", &C::output_dropout_prob, "dropout on what a layer adds",
               DropoutShare())
          .Add("layernorm_epsilon", &C::layernorm_epsilon, "added to variances", {.least = 0})
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("block_position_encoding", &C::block_position_encoding,
               "positions have a second coordinate, the place within the blank")
          .Add("sop_token_id", &C::sop_token_id, "id of <|startofpiece|>",
               {.unset = "the tokenizer's"})
          .Add("eop_token_id", &C::eop_token_id, "id of <|endofpiece|>",
               {.unset = "the tokenizer's"})
          .Add("mask_token_id", &C::mask_token_id, "id of [MASK]", {.unset = "the tokenizer's"})
          .Add("smask_token_id", &C::smask_token_id, "id of [sMASK]", {.unset = "the tokenizer's"})
          .Add("gmask_token_id", &C::gmask_token_id, "id of [gMASK]", {.unset = "the tokenizer's"})
          .AddUnsupported({{"relative_encoding", false},
                           {"max_memory_length", 0},
                           {"tie_word_embeddings", true},
                           {"spell_length", nullptr}}));  // prompts that are learnt
  return *table;
}

StatusOr<GlmConfig> GlmConfig::FromJson(const json& object) {
  GlmConfig c;
  ConfigReader reader(object, "glm");
  CheckArchitecture(object, kGlmArchitectures, &reader);
  reader.Read(&c);
  const std::pair<const char*, std::optional<int64_t>> tokens[] = {
      {"sop_token_id", c.sop_token_id},
      {"eop_token_id", c.eop_token_id},
      {"mask_token_id", c.mask_token_id},
      {"smask_token_id", c.smask_token_id},
      {"gmask_token_id", c.gmask_token_id}};
  for (const auto& [name, id] : tokens) {
    if (id) reader.RequireToken(name, *id, c.vocab_size);
  }
  // Divides and multiplies the scores again, against the overflow of half precision.
  double attention_scale = 1.0;
  reader.Read("attention_scale", &attention_scale, {.above = 0});
  reader.RequireMultiple("hidden_size", c.hidden_size, "num_attention_heads",
                         c.num_attention_heads);
  TESSERA_RETURN_IF_ERROR(reader.status());
  return c;
}

const OptionTable& ChatGlmConfig::Table() {
  using C = ChatGlmConfig;
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("ChatGLM")
          .Add("vocab_size", &C::vocab_size, "tokens", SizeBelow(kMostRows))
          .Add("hidden_size", &C::hidden_size, "features of a token", SizeBelow(kMostWidth))
          .Add("num_layers", &C::num_layers, "layers", SizeBelow(kMostLayers))
          .Add("num_attention_heads", &C::num_attention_heads, "heads of attention",
               SizeBelow(kMostWidth))
          .Add("inner_hidden_size", &C::inner_hidden_size,
               "inner features of the feed-forward part", SizeBelow(kMostInnerWidth))
          .Add("max_sequence_length", &C::max_sequence_length, "the longest text, in tokens",
               SizeBelow(kMostRows / 2))
          .Add("layernorm_epsilon", &C::layernorm_epsilon, "added to variances", {.least = 0})
          .Add("initializer_range", &C::initializer_range, "standard deviation of first weights",
               {.least = 0})
          .Add("tie_word_embeddings", &C::tie_word_embeddings, "the head is the embedding")
          .Add("bos_token_id", &C::bos_token_id, "id of the token that begins an answer")
          .Add("eos_token_id", &C::eos_token_id, "id of the token that ends an answer")
          .Add("mask_token_id", &C::mask_token_id, "id of [MASK]")
          .Add("gmask_token_id", &C::gmask_token_id, "id of [gMASK]")
          .Add("pad_token_id", &C::pad_token_id, "id of the token that fills rows")
          .AddUnsupported({{"position_encoding_2d", true},
                           {"use_bias", true},
                           {"quantization_bit", 0},
                           {"pre_seq_len", nullptr}}));  // prefix tuning
  return *table;
}

StatusOr<ChatGlmConfig> ChatGlmConfig::FromJson(const json& object) {
  ChatGlmConfig c;
  ConfigReader reader(object, "chatglm");
  CheckArchitecture(object, kChatGlmArchitectures, &reader);
  reader.Read(&c);
  // Each coordinate turns pairs of features in its half of a head.
  reader.Require(c.hidden_size % (4 * c.num_attention_heads) == 0,
                 Concat("'hidden_size' (", c.hidden_size, ") is not a multiple of 4 times ",
                        "'num_attention_heads' (", c.num_attention_heads, ")"));
  for (const auto& [name, id] : {std::pair{"bos_token_id", c.bos_token_id},
                                 {"eos_token_id", c.eos_token_id},
                                 {"mask_token_id", c.mask_token_id},
                                 {"gmask_token_id", c.gmask_token_id},
                                 {"pad_token_id", c.pad_token_id}}) {
    reader.RequireToken(name, id, c.vocab_size);
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
  return c;
}

}  // namespace tessera::models
