// SPDX-License-Identifier: Apache-2.0
// Writes a byte-level BPE as a folder that Tessera, Hugging Face's transformers and its tokenizers
// load.
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/tokenizer_json_text.h"

namespace tessera::data {
namespace {

// What the library that reads tokenizer.json puts around texts.
std::string PostProcessorJson(const ByteLevelBpeConfig& config, const std::string& byte_level) {
  if (!config.roberta) return byte_level;
  const auto pair = [&](const std::string& content) {
    int32_t id = 0;
    for (const AddedToken& token : config.added_tokens) {
      if (token.content == content) id = token.id;
    }
    return Concat("[", JsonQuoted(content), ", ", id, "]");
  };
  return Concat("{\"type\": \"RobertaProcessing\", \"sep\": ", pair(*config.sep_token),
                ", \"cls\": ", pair(*config.cls_token), ", \"trim_offsets\": true",
                ", \"add_prefix_space\": ", JsonBool(config.add_prefix_space), "}");
}

std::string Vocab(const ByteLevelBpeConfig& config) {
  std::vector<std::pair<int32_t, std::string>> by_id;
  by_id.reserve(config.vocab.size());
  for (const auto& [piece, id] : config.vocab) by_id.emplace_back(id, piece);
  return VocabJson(std::move(by_id));
}

std::string TokenizerJsonText(const ByteLevelBpeConfig& config) {
  std::string merges = "[";
  for (const auto& [left, right] : config.merges) {
    if (merges.size() > 1) merges += ", ";
    merges += JsonQuoted(Concat(left, " ", right));
  }
  merges += "]";
  const std::string byte_level =
      Concat("{\"type\": \"ByteLevel\", \"add_prefix_space\": ", JsonBool(config.add_prefix_space),
             ", \"trim_offsets\": false, \"use_regex\": ", JsonBool(config.use_regex), "}");
  const TokenizerJson json = {
      .added_tokens = config.added_tokens,
      .pre_tokenizer = byte_level,
      .post_processor = PostProcessorJson(config, byte_level),
      .decoder = byte_level,
      .model = Concat(
          "{\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ",
          config.unk_token ? JsonQuoted(*config.unk_token) : "null",
          ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": ",
          JsonBool(config.fuse_unk),
          ", \"byte_fallback\": false, \"ignore_merges\": ", JsonBool(config.ignore_merges),
          ",\n\"vocab\": ", Vocab(config), ",\n\"merges\": ", merges, "}")};
  return json.Text();
}

std::string MergesText(const ByteLevelBpeConfig& config) {
  std::string out = "#version: 0.2\n";
  for (const auto& [left, right] : config.merges) out += left + " " + right + "\n";
  return out;
}

std::string TokenizerConfigJson(const ByteLevelBpeConfig& config) {
  std::string out =
      Concat("{\n  \"tokenizer_class\": \"", config.roberta ? "RobertaTokenizer" : "GPT2Tokenizer",
             "\",\n  \"add_prefix_space\": ", JsonBool(config.add_prefix_space));
  const auto name = [&out](const char* key, const std::optional<std::string>& value) {
    if (value) out += Concat(",\n  \"", key, "\": ", JsonQuoted(*value));
  };
  // transformers takes <|endoftext|> for all three where they are not named.
  name("eos_token", config.eos_token);
  name("bos_token", config.bos_token ? config.bos_token : config.eos_token);
  name("unk_token", config.unk_token ? config.unk_token : config.eos_token);
  name("pad_token", config.pad_token);
  return out + "\n}\n";
}

}  // namespace

std::vector<TokenizerFile> ByteLevelBpe::Files() const {
  return {{"tokenizer.json", TokenizerJsonText(config_)},
          {"tokenizer_config.json", TokenizerConfigJson(config_)},
          {"vocab.json", Vocab(config_) + "\n"},
          {"merges.txt", MergesText(config_)}};
}

}  // namespace tessera::data
