#include "data/tokenizer/word_piece.h"

#include <algorithm>
#include <utility>

#include "core/file.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/python_text.h"
#include "data/tokenizer/utf8.h"

namespace tessera::data {
namespace {

constexpr int32_t kMaxId = 1 << 22;

}  // namespace

StatusOr<std::unique_ptr<WordPiece>> WordPiece::Create(WordPieceConfig config,
                                                       const std::string& source) {
  std::unique_ptr<WordPiece> result(new WordPiece(std::move(config)));
  TESSERA_RETURN_IF_ERROR(result->Build(source));
  return result;
}

Status WordPiece::Build(const std::string& source) {
  if (config_.vocab.empty()) return InvalidArgument(source, ": the vocabulary is empty");
  if (config_.vocab.size() > kMaxId) {
    return InvalidArgument(source, ": more than ", kMaxId, " lines");
  }
  token_bytes_.resize(config_.vocab.size());
  for (size_t i = 0; i < config_.vocab.size(); ++i) {
    const std::string& piece = config_.vocab[i];
    pieces_.Add(piece, static_cast<int32_t>(i));
    token_bytes_[i] =
        pieces_.Continues(piece) ? piece.substr(pieces_.prefix().size()) : " " + piece;
  }
  return AddTokens(source);
}

Status WordPiece::AddTokens(const std::string& source) {
  const auto named = [&](const std::string& name, const char* key) -> StatusOr<int32_t> {
    for (const AddedToken& token : config_.added_tokens) {
      if (token.content == name) return token.id;
    }
    const auto id = pieces_.Find(name);
    if (!id) return InvalidArgument(source, ": ", key, " ", name, " is not in the vocabulary");
    config_.added_tokens.push_back({.content = name, .id = *id});
    return *id;
  };
  TESSERA_ASSIGN_OR_RETURN(unk_id_, named(config_.unk_token, "unk_token"));
  pieces_.set_unk_id(unk_id_);
  TESSERA_ASSIGN_OR_RETURN(cls_id_, named(config_.cls_token, "cls_token"));
  TESSERA_ASSIGN_OR_RETURN(sep_id_, named(config_.sep_token, "sep_token"));
  TESSERA_ASSIGN_OR_RETURN(pad_id_, named(config_.pad_token, "pad_token"));
  TESSERA_ASSIGN_OR_RETURN(mask_id_, named(config_.mask_token, "mask_token"));
  SetBertRows();

  std::vector<SpecialToken> specials;
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (const AddedToken& token : config_.added_tokens) {
    if (token.id < 0 || token.id >= kMaxId) {
      return InvalidArgument(source, ": added token ", token.content, " has id ", token.id,
                             ", which is not in [0, ", kMaxId, ")");
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
    hash = HashBytes(Concat(token.content, token.id, token.normalized, token.lstrip, token.rstrip),
                     hash);
  }
  return hash;
}

Status WordPiece::Save(const std::string& folder) const {
  std::string vocab;
  for (const std::string& piece : config_.vocab) vocab += piece + "\n";
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(folder + "/vocab.txt", vocab));
  std::string text = config_.tokenizer_config;
  if (text.empty()) {
    nlohmann::json json = {{"tokenizer_class", "BertTokenizer"},
                           {"do_lower_case", config_.normalizer.lowercase},
                           {"tokenize_chinese_chars", config_.normalizer.tokenize_chinese_chars},
                           {"unk_token", config_.unk_token},
                           {"cls_token", config_.cls_token},
                           {"sep_token", config_.sep_token},
                           {"pad_token", config_.pad_token},
                           {"mask_token", config_.mask_token},
                           {"strip_accents", nullptr}};
    if (config_.normalizer.strip_accents) json["strip_accents"] = *config_.normalizer.strip_accents;
    text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return WriteFileAtomically(folder + "/tokenizer_config.json", text);
}

}  // namespace tessera::data
