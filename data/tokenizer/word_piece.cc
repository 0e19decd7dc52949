// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/word_piece.h"

#include <algorithm>
#include <utility>

#include "base/json_text.h"
#include "base/python_text.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer_json_text.h"

namespace tessera::data {
StatusOr<std::unique_ptr<WordPiece>> WordPiece::Create(WordPieceConfig config,
                                                       const std::string& source) {
  std::unique_ptr<WordPiece> result(new WordPiece(std::move(config)));
  TESSERA_RETURN_IF_ERROR(result->Build(source));
  return result;
}

Status WordPiece::Build(const std::string& source) {
  if (config_.vocab.empty()) return InvalidArgument(source, ": the vocabulary is empty");
  if (config_.vocab.size() > kMaxWordPieceId) {
    return InvalidArgument(source, ": more than ", kMaxWordPieceId, " lines");
  }
  token_bytes_.resize(config_.vocab.size());
  for (size_t i = 0; i < config_.vocab.size(); ++i) {
    const std::string& piece = config_.vocab[i];
    if (piece.empty()) continue;
    pieces_.Add(piece, static_cast<int32_t>(i));
    token_bytes_[i] =
        pieces_.Continues(piece) ? piece.substr(pieces_.prefix().size()) : " " + piece;
  }
  return AddTokens(source);
}

Status WordPiece::AddTokens(const std::string& source) {
  for (const std::string* name : {&config_.unk_token, &config_.cls_token, &config_.sep_token}) {
    if (name->empty())
      return InvalidArgument(source, ": unk_token, cls_token or sep_token is empty");
  }
  using Id = std::optional<int32_t>;
  const auto named = [&](const std::string& name, const char* key) -> StatusOr<Id> {
    if (name.empty()) return Id();
    for (const AddedToken& token : config_.added_tokens) {
      if (token.content == name) return Id(token.id);
    }
    const auto id = pieces_.Find(name);
    if (!id) return InvalidArgument(source, ": ", key, " ", name, " is not in the vocabulary");
    config_.added_tokens.push_back({.content = name, .id = *id});
    return Id(*id);
  };
  TESSERA_ASSIGN_OR_RETURN(const Id unk_id, named(config_.unk_token, "unk_token"));
  unk_id_ = unk_id.value_or(0);
  pieces_.set_unk_id(unk_id_);
  TESSERA_ASSIGN_OR_RETURN(cls_id_, named(config_.cls_token, "cls_token"));
  TESSERA_ASSIGN_OR_RETURN(sep_id_, named(config_.sep_token, "sep_token"));
  TESSERA_ASSIGN_OR_RETURN(pad_id_, named(config_.pad_token, "pad_token"));
  TESSERA_ASSIGN_OR_RETURN(mask_id_, named(config_.mask_token, "mask_token"));
  SetBertRows();

  std::stable_sort(config_.added_tokens.begin(), config_.added_tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::vector<SpecialToken> specials;
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (const AddedToken& token : config_.added_tokens) {
    if (token.id < 0 || token.id >= kMaxWordPieceId) {
      return InvalidArgument(source, ": added token ", token.content, " has id ", token.id,
                             ", which is not in [0, ", kMaxWordPieceId, ")");
    }
    const auto index = static_cast<size_t>(token.id);
    if (index >= token_bytes_.size()) token_bytes_.resize(index + 1);
    token_bytes_[index] = " " + token.content;
    if (token.special) specials.push_back({token.content, token.id});
    AddedToken copy = token;
    copy.normalized = false;
    if (token.normalized) copy.content = normalizer_.Normalize(token.content);
    (token.normalized ? normalized : raw).push_back(copy);
  }
  set_special_tokens(std::move(specials));
  matcher_ = AddedTokenMatcher(raw);
  normalized_matcher_ = AddedTokenMatcher(normalized);
  return OkStatus();
}

std::string_view WordPiece::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return token_bytes_[static_cast<size_t>(id)];
}

void WordPiece::EncodeText(std::string_view text, std::vector<int32_t>* ids) const {
  const std::string normalized = normalizer_.Normalize(text);
  for (const TextPiece& piece : normalized_matcher_.Split(normalized, true)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
    } else {
      BertNormalizer::ForEachWord(piece.text,
                                  [&](std::string_view word) { pieces_.Encode(word, ids); });
    }
  }
}

void WordPiece::EncodeTo(std::string_view text, const EncodeOptions& options,
                         std::vector<int32_t>* ids) const {
  for (const TextPiece& piece : matcher_.Split(text, options.parse_special)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
    } else {
      EncodeText(piece.text, ids);
    }
  }
}

std::string WordPiece::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string out = Tokenizer::Decode(ids, options);
  if (out.starts_with(' ')) out.erase(0, 1);
  CleanUpSpaces(&out);
  return out;
}

uint64_t WordPiece::Fingerprint() const {
  const BertNormalizerOptions& n = config_.normalizer;
  uint64_t hash = HashBytes(Concat("wordpiece", n.lowercase, n.strip_accents.value_or(n.lowercase),
                                   n.tokenize_chinese_chars, unk_id_));
  for (const std::string& piece : config_.vocab) hash = HashBytes(piece + "\n", hash);
  for (const AddedToken& token : config_.added_tokens) {
    hash = HashBytes(Concat(token.content, token.id, token.normalized, token.lstrip, token.rstrip,
                            token.single_word ? "word" : ""),
                     hash);
  }
  return hash;
}

std::vector<TokenizerFile> WordPiece::Files() const {
  const BertNormalizerOptions& normalizer = config_.normalizer;
  const std::string strip = normalizer.strip_accents ? JsonBool(*normalizer.strip_accents) : "null";
  std::string lines;
  std::vector<std::pair<int32_t, std::string>> by_id;
  for (size_t i = 0; i < config_.vocab.size(); ++i) {
    lines += config_.vocab[i] + "\n";
    if (!config_.vocab[i].empty()) by_id.emplace_back(static_cast<int32_t>(i), config_.vocab[i]);
  }
  TokenizerJson json = {
      .added_tokens = config_.added_tokens,
      .normalizer = Concat(
          "{\"type\": \"BertNormalizer\", \"clean_text\": true",
          ", \"handle_chinese_chars\": ", JsonBool(normalizer.tokenize_chinese_chars),
          ", \"strip_accents\": ", strip, ", \"lowercase\": ", JsonBool(normalizer.lowercase), "}"),
      .pre_tokenizer = R"({"type": "BertPreTokenizer"})",
      .decoder = R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
      .model = Concat("{\"type\": \"WordPiece\", \"unk_token\": ", JsonQuoted(config_.unk_token),
                      ", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100",
                      ",\n\"vocab\": ", VocabJson(std::move(by_id)), "}")};
  json.post_processor = TemplateJson(*row_template(false), *row_template(true), [this](int32_t id) {
    return id == cls_id_ ? config_.cls_token : config_.sep_token;
  });
  std::string names;
  for (const auto& [key, name] : {std::pair("unk_token", &config_.unk_token),
                                  {"cls_token", &config_.cls_token},
                                  {"sep_token", &config_.sep_token},
                                  {"pad_token", &config_.pad_token},
                                  {"mask_token", &config_.mask_token}}) {
    if (!name->empty()) names += Concat(",\n  \"", key, "\": ", JsonQuoted(*name));
  }
  return {{"vocab.txt", std::move(lines)},
          {"tokenizer.json", json.Text()},
          {"tokenizer_config.json",
           Concat("{\n  \"tokenizer_class\": \"BertTokenizer\",\n  \"do_lower_case\": ",
                  JsonBool(normalizer.lowercase),
                  ",\n  \"tokenize_chinese_chars\": ", JsonBool(normalizer.tokenize_chinese_chars),
                  ",\n  \"strip_accents\": ", strip, names, "\n}\n")}};
}

}  // namespace tessera::data
