// SPDX-License-Identifier: Apache-2.0
// Reads the files of a WordPiece tokenizer.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/utf8.h"
#include "data/tokenizer/declared_tokens.h"
#include "data/tokenizer/json_part.h"
#include "data/tokenizer/pipeline_post_processor.h"
#include "data/tokenizer/tokenizer_kind.h"
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

// The vocabulary and the normalizer of a tokenizer.json that is BERT's (tokenizer_json.cc).
Status ReadTokenizerJson(const std::string& path, WordPieceConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const json file, ReadJsonFile(path));
  const JsonPart root(file, path);
  const JsonPart vocab = root["model"]["vocab"];
  if (!vocab.value().is_object()) return vocab.Wrong("not a JSON object of pieces");
  for (const auto& [piece, id] : vocab.value().items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMaxWordPieceId) {
      return vocab.Wrong(
          Concat("the id of ", piece, " is not a number in [0, ", kMaxWordPieceId, ")"));
    }
    const auto index = id.get<size_t>();
    if (index >= config->vocab.size()) config->vocab.resize(index + 1);
    if (!config->vocab[index].empty()) {
      return vocab.Wrong(
          Concat("id ", index, " is that of ", config->vocab[index], " and of ", piece));
    }
    config->vocab[index] = piece;
  }
  const JsonPart normalizer = root["normalizer"];
  BertNormalizerOptions& options = config->normalizer;
  TESSERA_ASSIGN_OR_RETURN(options.lowercase, normalizer.Bool("lowercase", true));
  TESSERA_ASSIGN_OR_RETURN(options.strip_accents,
                           normalizer.Bool("strip_accents", options.lowercase));
  TESSERA_ASSIGN_OR_RETURN(options.tokenize_chinese_chars,
                           normalizer.Bool("handle_chinese_chars", true));
  TESSERA_ASSIGN_OR_RETURN(config->unk_token, root["model"].Text("unk_token", "[UNK]"));
  TESSERA_ASSIGN_OR_RETURN(config->added_tokens, ReadAddedTokens(root["added_tokens"]));
  RowTemplate single;
  RowTemplate pair;
  TESSERA_RETURN_IF_ERROR(ReadPostProcessor(root["post_processor"], &single, &pair));
  const auto name_of = [config](int32_t id) {
    for (const AddedToken& token : config->added_tokens) {
      if (token.id == id) return token.content;
    }
    const auto index = static_cast<size_t>(id);
    return index < config->vocab.size() ? config->vocab[index] : std::string();
  };
  config->cls_token = name_of(pair.items.front().id);
  config->sep_token = name_of(pair.items.back().id);
  return OkStatus();
}

// BertTokenizer's own switches, which count where a tokenizer.json says otherwise, too.
Status ReadConfig(const std::string& path, WordPieceConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const json root, ReadJsonFile(path));
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  BertNormalizerOptions& normalizer = config->normalizer;
  TESSERA_RETURN_IF_ERROR(ReadMember(root, "do_lower_case", path, &normalizer.lowercase));
  TESSERA_RETURN_IF_ERROR(
      ReadMember(root, "tokenize_chinese_chars", path, &normalizer.tokenize_chinese_chars));
  if (root.contains("strip_accents")) {
    normalizer.strip_accents = std::nullopt;
    if (!root["strip_accents"].is_null()) {
      bool strip = false;
      TESSERA_RETURN_IF_ERROR(ReadMember(root, "strip_accents", path, &strip));
      normalizer.strip_accents = strip;
    }
  }
  bool basic = true;
  TESSERA_RETURN_IF_ERROR(ReadMember(root, "do_basic_tokenize", path, &basic));
  if (!basic) return InvalidArgument(path, ": do_basic_tokenize false is not supported");
  return OkStatus();
}

// What the files beside the vocabulary say of special tokens; `optional`: the names that BERT has
// by default need not be there.
void TakeDeclared(const DeclaredTokens& declared, bool optional, WordPieceConfig* config) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < config->vocab.size(); ++i) {
    ids.insert_or_assign(config->vocab[i], static_cast<int32_t>(i));
  }
  const auto find = [&](const std::string& piece) {
    const auto at = ids.find(piece);
    return at == ids.end() ? std::nullopt : std::optional(at->second);
  };
  declared.AddTo(find, std::ssize(config->vocab), &config->added_tokens);
  const auto is_added = [&](const std::string& name) {
    return std::any_of(config->added_tokens.begin(), config->added_tokens.end(),
                       [&](const AddedToken& token) { return token.content == name; });
  };
  const std::pair<const char*, std::string*> names[] = {{"unk_token", &config->unk_token},
                                                        {"cls_token", &config->cls_token},
                                                        {"sep_token", &config->sep_token},
                                                        {"pad_token", &config->pad_token},
                                                        {"mask_token", &config->mask_token}};
  for (const auto& [key, name] : names) {
    if (const std::string* const found = declared.NameOf(key)) {
      *name = *found;
    } else if (optional && !find(*name) && !is_added(*name)) {
      name->clear();
    }
  }
}

// BERT's, and those of transformers that are it under another name.
constexpr const char* kClasses[] = {"BertTokenizer",       "BertTokenizerFast",
                                    "DistilBertTokenizer", "DistilBertTokenizerFast",
                                    "ElectraTokenizer",    "ElectraTokenizerFast"};

bool IsBertClass(const std::string& name) {
  return std::find(std::begin(kClasses), std::end(kClasses), name) != std::end(kClasses);
}

Claim ClaimOf(const TokenizerFolder& folder) {
  if (!folder.Has("vocab.txt")) return Claim::kNone;
  if (IsBertClass(folder.tokenizer_class)) return Claim::kClass;
  return folder.Has("vocab.json") ? Claim::kNone : Claim::kFiles;
}

const TokenizerRegistration registration({.files = "vocab.txt",
                                          .claim = ClaimOf,
                                          .load = WordPiece::Load});

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> WordPiece::Load(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const TokenizerFolder shown, TokenizerFolder::Open(folder));
  const bool whole = shown.Has("tokenizer.json");
  const std::string path = JoinPath(folder, whole ? "tokenizer.json" : "vocab.txt");
  WordPieceConfig config;
  TESSERA_RETURN_IF_ERROR(whole ? ReadTokenizerJson(path, &config)
                                : ReadVocab(path, &config.vocab));
  if (shown.Has("tokenizer_config.json") && (!whole || IsBertClass(shown.tokenizer_class))) {
    TESSERA_RETURN_IF_ERROR(ReadConfig(JoinPath(folder, "tokenizer_config.json"), &config));
  }
  TESSERA_ASSIGN_OR_RETURN(const DeclaredTokens declared, ReadDeclaredTokens(folder));
  TakeDeclared(declared, /*optional=*/whole, &config);
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<WordPiece> result, Create(std::move(config), path));
  return std::unique_ptr<Tokenizer>(std::move(result));
}

}  // namespace tessera::data
