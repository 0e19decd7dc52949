// Writes a byte-level BPE as a folder that Tessera, Hugging Face's transformers and its tokenizers
// load.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/tokenizer/byte_level_bpe.h"
#include "data/tokenizer/json_text.h"

namespace tessera::data {
namespace {

const char* Bool(bool value) { return value ? "true" : "false"; }

// {"piece": id, ...} in the order of the ids.
std::string VocabJson(const ByteLevelBpeConfig& config) {
  std::vector<std::pair<int32_t, const std::string*>> by_id;
  by_id.reserve(config.vocab.size());
  for (const auto& [piece, id] : config.vocab) by_id.emplace_back(id, &piece);
  std::sort(by_id.begin(), by_id.end());
  std::string out = "{";
  for (const auto& [id, piece] : by_id) {
    if (out.size() > 1) out += ", ";
    out += JsonQuoted(*piece);
    out += ": ";
    out += std::to_string(id);
  }
  return out + "}";
}

std::string AddedTokensJson(const ByteLevelBpeConfig& config) {
  std::vector<AddedToken> tokens = config.added_tokens;
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::string out = "[";
  for (const AddedToken& token : tokens) {
    if (out.size() > 1) out += ", ";
    out +=
        Concat("{\"id\": ", token.id, ", \"content\": ", JsonQuoted(token.content),
               ", \"single_word\": false, \"lstrip\": ", Bool(token.lstrip),
               ", \"rstrip\": ", Bool(token.rstrip), ", \"normalized\": ", Bool(token.normalized),
               ", \"special\": ", Bool(token.special), "}");
  }
  return out + "]";
}

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
                ", \"add_prefix_space\": ", Bool(config.add_prefix_space), "}");
}

std::string TokenizerJson(const ByteLevelBpeConfig& config) {
  std::string merges = "[";
  for (const auto& [left, right] : config.merges) {
    if (merges.size() > 1) merges += ", ";
    merges += JsonQuoted(Concat(left, " ", right));
  }
  merges += "]";
  const std::string byte_level =
      Concat("{\"type\": \"ByteLevel\", \"add_prefix_space\": ", Bool(config.add_prefix_space),
             ", \"trim_offsets\": false, \"use_regex\": ", Bool(config.use_regex), "}");
  return Concat(
      "{\n\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n\"added_tokens\": ",
      AddedTokensJson(config), ",\n\"normalizer\": null,\n\"pre_tokenizer\": ", byte_level,
      ",\n\"post_processor\": ", PostProcessorJson(config, byte_level),
      ",\n\"decoder\": ", byte_level,
      ",\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ",
      config.unk_token ? JsonQuoted(*config.unk_token) : "null",
      ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": ",
      Bool(config.fuse_unk),
      ", \"byte_fallback\": false, \"ignore_merges\": ", Bool(config.ignore_merges),
      ",\n\"vocab\": ", VocabJson(config), ",\n\"merges\": ", merges, "}\n}\n");
}

std::string MergesText(const ByteLevelBpeConfig& config) {
  std::string out = "#version: 0.2\n";
  for (const auto& [left, right] : config.merges) out += left + " " + right + "\n";
  return out;
}

std::string TokenizerConfigJson(const ByteLevelBpeConfig& config) {
  if (!config.tokenizer_config.empty()) return config.tokenizer_config;
  std::string out =
      Concat("{\n  \"tokenizer_class\": \"", config.roberta ? "RobertaTokenizer" : "GPT2Tokenizer",
             "\",\n  \"add_prefix_space\": ", Bool(config.add_prefix_space));
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

Status ByteLevelBpe::Save(const std::string& folder) const {
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(folder + "/vocab.json", VocabJson(config_) + "\n"));
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(folder + "/merges.txt", MergesText(config_)));
  TESSERA_RETURN_IF_ERROR(
      WriteFileAtomically(folder + "/tokenizer_config.json", TokenizerConfigJson(config_)));
  return WriteFileAtomically(folder + "/tokenizer.json", TokenizerJson(config_));
}

}  // namespace tessera::data
