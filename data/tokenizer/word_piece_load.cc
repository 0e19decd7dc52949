// Reads the files of a WordPiece tokenizer.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "core/file.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "data/tokenizer/utf8.h"
#include "data/tokenizer/word_piece.h"

namespace tessera::data {
namespace {

using nlohmann::json;

Status ReadVocab(const std::string& path, std::vector<std::string>* vocab) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != kNoInvalidUtf8) {
    return InvalidArgument(path, ": invalid UTF-8 at byte ", invalid);
  }
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    vocab->emplace_back(line);
    begin = end + 1;
  }
  return OkStatus();
}

Status ReadBool(const json& object, const char* key, const std::string& path, bool* value) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return OkStatus();
  if (!found->is_boolean()) return InvalidArgument(path, ": ", key, " is not true or false");
  *value = found->get<bool>();
  return OkStatus();
}

// "[CLS]" or {"content": "[CLS]", ...}.
void ReadName(const json& object, const char* key, std::string* name) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  const json& content =
      found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  if (content.is_string() && !content.get_ref<const std::string&>().empty()) {
    *name = content.get<std::string>();
  }
}

Status ReadAddedTokens(const json& added, const std::string& path, WordPieceConfig* config) {
  if (!added.is_object()) {
    return InvalidArgument(path, ": added_tokens_decoder is not an object");
  }
  for (const auto& [key, item] : added.items()) {
    const bool number =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!number || !item.is_object() || !item.contains("content") || !item["content"].is_string() ||
        item["content"].get_ref<const std::string&>().empty()) {
      return InvalidArgument(path, ": an added token needs a content and an id >= 0");
    }
    AddedToken token{.content = item["content"].get<std::string>(), .id = std::stoi(key)};
    bool single_word = false;
    token.special = false;
    TESSERA_RETURN_IF_ERROR(ReadBool(item, "special", path, &token.special));
    token.normalized = !token.special;
    TESSERA_RETURN_IF_ERROR(ReadBool(item, "normalized", path, &token.normalized));
    TESSERA_RETURN_IF_ERROR(ReadBool(item, "lstrip", path, &token.lstrip));
    TESSERA_RETURN_IF_ERROR(ReadBool(item, "rstrip", path, &token.rstrip));
    TESSERA_RETURN_IF_ERROR(ReadBool(item, "single_word", path, &single_word));
    if (single_word) {
      return InvalidArgument(path, ": single_word of added token ", token.content,
                             " is not supported");
    }
    config->added_tokens.push_back(std::move(token));
  }
  return OkStatus();
}

Status ReadConfig(const std::string& path, WordPieceConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(config->tokenizer_config, ReadFile(path));
  TESSERA_ASSIGN_OR_RETURN(const json root, ParseJson(config->tokenizer_config, path));
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  BertNormalizerOptions& normalizer = config->normalizer;
  TESSERA_RETURN_IF_ERROR(ReadBool(root, "do_lower_case", path, &normalizer.lowercase));
  TESSERA_RETURN_IF_ERROR(
      ReadBool(root, "tokenize_chinese_chars", path, &normalizer.tokenize_chinese_chars));
  if (root.contains("strip_accents") && !root["strip_accents"].is_null()) {
    bool strip = false;
    TESSERA_RETURN_IF_ERROR(ReadBool(root, "strip_accents", path, &strip));
    normalizer.strip_accents = strip;
  }
  bool basic = true;
  TESSERA_RETURN_IF_ERROR(ReadBool(root, "do_basic_tokenize", path, &basic));
  if (!basic) return InvalidArgument(path, ": do_basic_tokenize false is not supported");
  ReadName(root, "unk_token", &config->unk_token);
  ReadName(root, "cls_token", &config->cls_token);
  ReadName(root, "sep_token", &config->sep_token);
  ReadName(root, "pad_token", &config->pad_token);
  ReadName(root, "mask_token", &config->mask_token);
  if (!root.contains("added_tokens_decoder")) return OkStatus();
  return ReadAddedTokens(root["added_tokens_decoder"], path, config);
}

// BERT's, and those of transformers that are it under another name.
constexpr const char* kClasses[] = {"BertTokenizer",       "BertTokenizerFast",
                                    "DistilBertTokenizer", "DistilBertTokenizerFast",
                                    "ElectraTokenizer",    "ElectraTokenizerFast"};

Claim ClaimOf(const TokenizerFolder& folder) {
  if (!folder.Has("vocab.txt")) return Claim::kNone;
  const bool named = std::find(std::begin(kClasses), std::end(kClasses), folder.tokenizer_class) !=
                     std::end(kClasses);
  if (named) return Claim::kClass;
  const bool says_more = folder.Has("tokenizer.json") || folder.Has("vocab.json");
  return says_more ? Claim::kNone : Claim::kFiles;
}

const TokenizerRegistration registration({.files = "vocab.txt",
                                          .claim = ClaimOf,
                                          .load = WordPiece::Load});

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> WordPiece::Load(const std::string& folder) {
  const std::filesystem::path base(folder);
  WordPieceConfig config;
  const std::string vocab_path = (base / "vocab.txt").string();
  TESSERA_RETURN_IF_ERROR(ReadVocab(vocab_path, &config.vocab));
  std::error_code ignored;
  if (std::filesystem::exists(base / "tokenizer_config.json", ignored)) {
    TESSERA_RETURN_IF_ERROR(ReadConfig((base / "tokenizer_config.json").string(), &config));
  }
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WordPiece> result,
                           Create(std::move(config), vocab_path));
  return std::unique_ptr<Tokenizer>(std::move(result));
}

}  // namespace tessera::data
