// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/sentence_piece.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/normal_forms.h"
#include "base/python_text.h"
#include "base/unicode_classes.h"
#include "base/utf8.h"
#include "data/tokenizer/bert_normalizer.h"
#include "data/tokenizer/vocab_index.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

constexpr int kMaxBlanks = 80;

// fairseq's ids, which XLM-RoBERTa keeps: the model's are moved up by one.
constexpr std::pair<std::string_view, int32_t> kFairseqIds[] = {
    {"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"<unk>", 3}};

std::string BlankToken(int count) { return Concat("<|blank_", count, "|>"); }

std::string WithoutAccents(std::string_view text) {
  const std::string decomposed = Normalize(text, NormalForm::kNfkd);
  std::string out;
  out.reserve(decomposed.size());
  for (size_t i = 0; i < decomposed.size();) {
    const Utf8Char c = DecodeUtf8(decomposed, i);
    const auto length = static_cast<size_t>(c.length);
    if (!c.valid || CombiningClass(c.code_point) == 0) out.append(decomposed, i, length);
    i += length;
  }
  return out;
}

// ChatGLM's: white space that the model would change or lose, written as pieces.
std::string WithWhiteSpacePieces(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\n') {
      out += "<n>";
      ++i;
    } else if (text[i] == '\t') {
      out += "<|tab|>";
      ++i;
    } else if (text[i] == ' ') {
      size_t run = 0;
      while (i + run < text.size() && text[i + run] == ' ') ++run;
      i += run;
      for (; run >= 2; run -= std::min<size_t>(run, kMaxBlanks)) {
        out += BlankToken(static_cast<int>(std::min<size_t>(run, kMaxBlanks)));
      }
      if (run == 1) out += ' ';
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace

StatusOr<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::Create(
    SentencePieceConfig config, const std::string& source) {
  std::unique_ptr<SentencePieceTokenizer> result(new SentencePieceTokenizer(std::move(config)));
  TESSERA_RETURN_IF_ERROR(result->Build(source));
  return result;
}

Status SentencePieceTokenizer::Build(const std::string& source) {
  std::string error;
  model_ = SentencePieceModel::Parse(config_.model, &error);
  if (model_ == nullptr) return InvalidArgument(source, ": ", error);
  if (config_.num_image_tokens < 0 || config_.num_image_tokens > kMaxTokenId ||
      model_->size() + config_.num_image_tokens > kMaxTokenId) {
    return InvalidArgument(source, ": more than ", kMaxTokenId, " ids");
  }
  const bool has_bare =
      config_.family == SentencePieceFamily::kT5 || config_.family == SentencePieceFamily::kLlama;
  bare_ = has_bare && !config_.legacy;
  if (bare_) {
    std::vector<int32_t> ids;
    model_->Encode(config_.unk_token, &ids, /*dummy_prefix=*/false);
    unk_length_ = ids.size();
  }
  TESSERA_RETURN_IF_ERROR(AddTokens(source));
  NameTokens();
  SetRows();
  FillTokenBytes();
  return OkStatus();
}

int32_t SentencePieceTokenizer::IdOfPiece(int32_t piece) const {
  if (config_.family != SentencePieceFamily::kXlmRoberta) return piece + config_.num_image_tokens;
  if (piece == model_->unk_id()) return 3;
  const std::string& text = model_->Piece(piece);
  for (const auto& [name, id] : kFairseqIds) {
    if (name == text) return id;
  }
  return piece + 1;
}

int32_t SentencePieceTokenizer::PieceOfId(int32_t id) const {
  if (config_.family != SentencePieceFamily::kXlmRoberta) {
    const int32_t piece = id - config_.num_image_tokens;
    return piece >= 0 && piece < model_->size() ? piece : -1;
  }
  for (const auto& [name, fixed] : kFairseqIds) {
    if (fixed == id) return model_->Find(name).value_or(-1);
  }
  return id >= 4 && id <= model_->size() ? id - 1 : -1;
}

std::optional<int32_t> SentencePieceTokenizer::IdOf(const std::string& token) const {
  if (const AddedToken* const added = FindByContent(added_, token)) return added->id;
  if (config_.family == SentencePieceFamily::kXlmRoberta) {
    for (const auto& [name, id] : kFairseqIds) {
      if (name == token) return id;
    }
    if (token == "<mask>") return model_->size() + 1;
  }
  const auto piece = model_->Find(token);
  return piece ? std::optional(IdOfPiece(*piece)) : std::nullopt;
}

Status SentencePieceTokenizer::AddToken(AddedToken token, const std::string& source) {
  if (token.content.empty() || token.id < 0 || token.id >= kMaxTokenId) {
    return InvalidArgument(source, ": added token ", JsonQuoted(token.content), " has id ",
                           token.id, ", which is not in [0, ", kMaxTokenId, ")");
  }
  for (AddedToken& known : added_) {
    if (known.id == token.id) {
      known = std::move(token);
      return OkStatus();
    }
  }
  added_.push_back(std::move(token));
  return OkStatus();
}

// In transformers' order: sentinels, tokens that come with ids, then the named special ones, which
// get the next ids where the model does not hold them.
Status SentencePieceTokenizer::AddTokens(const std::string& source) {
  for (int i = 0; i < config_.extra_ids; ++i) {
    TESSERA_RETURN_IF_ERROR(AddToken({.content = Concat("<extra_id_", i, ">"),
                                      .id = model_->size() - 1 + config_.extra_ids - i,
                                      .special = true,
                                      .lstrip = true,
                                      .rstrip = true},
                                     source));
  }
  for (const AddedToken& token : config_.added_tokens) {
    TESSERA_RETURN_IF_ERROR(AddToken(token, source));
  }
  int32_t next = model_->size() + config_.num_image_tokens;
  if (config_.family == SentencePieceFamily::kXlmRoberta) next += 2;
  for (const AddedToken& token : added_) {
    if (token.id >= model_->size() + config_.num_image_tokens || !model_->Find(token.content)) {
      ++next;
    }
  }
  std::vector<std::string> names = {config_.bos_token, config_.eos_token, config_.unk_token,
                                    config_.sep_token, config_.pad_token, config_.cls_token,
                                    config_.mask_token};
  names.insert(names.end(), config_.additional_special_tokens.begin(),
               config_.additional_special_tokens.end());
  for (const std::string& name : names) {
    if (name.empty()) continue;
    const auto known = std::find_if(added_.begin(), added_.end(),
                                    [&](const AddedToken& t) { return t.content == name; });
    if (known != added_.end()) {
      known->special = true;
      continue;
    }
    const auto id = IdOf(name);
    const bool lstrip = config_.mask_lstrip && name == config_.mask_token;
    TESSERA_RETURN_IF_ERROR(
        AddToken({.content = name, .id = id ? *id : next++, .lstrip = lstrip}, source));
  }
  SortById(&added_);
  const auto first_behind = model_->size() + config_.num_image_tokens +
                            (config_.family == SentencePieceFamily::kXlmRoberta ? 2 : 0);
  std::vector<AddedToken> matched = added_;
  for (AddedToken& token : matched) {
    const auto& additional = config_.additional_special_tokens;
    const bool extra = token.content.starts_with("<extra_id_") && config_.extra_ids > 0;
    const bool listed =
        extra || std::find(additional.begin(), additional.end(), token.content) != additional.end();
    separate_.push_back(!token.special || (listed && token.id >= first_behind));
    token.normalized = token.lstrip = token.rstrip = false;  // Cut strips, as Python does
    token.special = true;                                    // parse_special is all or nothing
  }
  matcher_ = AddedTokenMatcher(matched);
  return OkStatus();
}

void SentencePieceTokenizer::NameTokens() {
  const auto id_of = [this](const std::string& name) {
    return name.empty() ? std::nullopt : IdOf(name);
  };
  bos_id_ = id_of(config_.bos_token);
  eos_id_ = id_of(config_.eos_token);
  pad_id_ = id_of(config_.pad_token);
  cls_id_ = id_of(config_.cls_token);
  sep_id_ = id_of(config_.sep_token);
  mask_id_ = id_of(config_.mask_token);
  std::vector<SpecialToken> specials;
  for (const AddedToken& token : added_) {
    if (token.special) specials.push_back({token.content, token.id});
  }
  if (config_.family == SentencePieceFamily::kChatGlm) {
    // Pieces of the model that text does not name, but models do.
    for (const char* name : {"[gMASK]", "[sMASK]", "<sop>", "<eop>"}) {
      const auto id = IdOf(name);
      if (id && FindAdded(*id) == nullptr) specials.push_back({name, *id});
    }
  }
  strips_text_ = config_.family == SentencePieceFamily::kT5 ||
                 config_.family == SentencePieceFamily::kAlbert ||
                 config_.family == SentencePieceFamily::kXlmRoberta;
  drops_blanks_until_text_ = DropsFirstBlank();
  set_special_tokens(std::move(specials));
}

void SentencePieceTokenizer::FillTokenBytes() {
  int32_t last = IdOfPiece(model_->size() - 1);
  if (!added_.empty()) last = std::max(last, added_.back().id);
  token_bytes_.resize(static_cast<size_t>(last) + 1);
  const bool chat = config_.family == SentencePieceFamily::kChatGlm;
  for (int32_t piece = 0; piece < model_->size(); ++piece) {
    std::string& bytes = token_bytes_[static_cast<size_t>(IdOfPiece(piece))];
    const std::string& text = model_->Piece(piece);
    switch (model_->Kind(piece)) {
      case PieceKind::kControl:
        break;
      case PieceKind::kUnknown:
        bytes = model_->Decode({text});
        break;
      case PieceKind::kByte:
        bytes = std::string(1, static_cast<char>(*ByteOfPiece(text)));
        break;
      case PieceKind::kText:
        bytes = ReplacedAll(text, kSentencePieceBlank, " ");
        if (chat && bytes == "<n>") bytes = "\n";
        if (chat && bytes == "<|tab|>") bytes = "\t";
        break;
    }
  }
  if (chat) {
    for (int blanks = 2; blanks <= kMaxBlanks; ++blanks) {
      const auto id = IdOf(BlankToken(blanks));
      if (id)
        token_bytes_[static_cast<size_t>(*id)] = std::string(static_cast<size_t>(blanks), ' ');
    }
  }
  for (const AddedToken& token : added_) {
    token_bytes_[static_cast<size_t>(token.id)] = token.content;
  }
}

std::string_view SentencePieceTokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return token_bytes_[static_cast<size_t>(id)];
}

// Gemma's and their like keep the blank that a text begins with.
bool SentencePieceTokenizer::DropsFirstBlank() const {
  const bool llama = config_.family == SentencePieceFamily::kLlama;
  return !llama || config_.add_prefix_space || model_->drops_first_blank();
}

std::string_view SentencePieceTokenizer::FirstTokenBytes(int32_t id) const {
  const int32_t piece = FindAdded(id) == nullptr ? PieceOfId(id) : -1;
  const bool drops = DropsFirstBlank() && piece >= 0 && model_->Kind(piece) == PieceKind::kText &&
                     model_->Piece(piece).starts_with(kSentencePieceBlank);
  return TokenBytes(id).substr(drops ? 1 : 0);
}

std::vector<TextPiece> SentencePieceTokenizer::Cut(std::string_view text,
                                                   bool parse_special) const {
  if (!parse_special) return {{text, -1}};
  std::vector<TextPiece> pieces = matcher_.Split(text, true);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].id < 0) continue;
    const AddedToken* token = FindAdded(pieces[i].id);
    if (token->rstrip && i + 1 < pieces.size() && pieces[i + 1].id < 0) {
      pieces[i + 1].text = StripLeft(pieces[i + 1].text);
    }
    if (token->lstrip && i > 0 && pieces[i - 1].id < 0) {
      pieces[i - 1].text = StripRight(pieces[i - 1].text);
    }
  }
  return pieces;
}

// What the families do with the text between added tokens before the model gets it.
std::string SentencePieceTokenizer::Prepare(std::string_view text) const {
  std::string out = config_.remove_space ? CollapsedSpaces(text) : std::string(text);
  if (config_.family == SentencePieceFamily::kAlbert) {
    out = ReplacedAll(ReplacedAll(out, "``", "\""), "''", "\"");
    if (!config_.keep_accents) out = WithoutAccents(out);
  }
  if (config_.do_lower_case) out = LowerCased(out);
  if (config_.family == SentencePieceFamily::kChatGlm) out = WithWhiteSpacePieces(out);
  return out;
}

// "9,9" is to become "9" "," "9" even where "9," is a piece.
void SentencePieceTokenizer::EncodeAlbert(const std::string& text,
                                          std::vector<int32_t>* pieces) const {
  std::vector<int32_t> raw;
  model_->Encode(text, &raw);
  for (const int32_t id : raw) {
    const std::string& piece = model_->Piece(id);
    const size_t before = piece.size() > 1 ? LastCharacter(piece, piece.size() - 1) : 0;
    const bool number_comma =
        piece.size() > 1 && piece.back() == ',' &&
        UnicodeClasses::Get().Of(DecodeUtf8(piece, before).code_point) == CharClass::kNumber;
    if (!number_comma) {
      pieces->push_back(id);
      continue;
    }
    std::vector<int32_t> parts;
    model_->Encode(ReplacedAll(piece.substr(0, piece.size() - 1), kSentencePieceBlank, ""), &parts);
    if (!parts.empty() && !piece.starts_with(kSentencePieceBlank) &&
        model_->Piece(parts[0]).starts_with(kSentencePieceBlank)) {
      const std::string rest = model_->Piece(parts[0]).substr(kSentencePieceBlank.size());
      if (rest.empty()) {
        parts.erase(parts.begin());
      } else {
        parts[0] = model_->Find(rest).value_or(model_->unk_id());
      }
    }
    pieces->insert(pieces->end(), parts.begin(), parts.end());
    pieces->push_back(model_->Find(",").value_or(model_->unk_id()));
  }
}

void SentencePieceTokenizer::EncodePart(std::string_view text, std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  const size_t first = ids->size();
  if (config_.family == SentencePieceFamily::kAlbert) {
    EncodeAlbert(Prepare(text), ids);
  } else if (bare_) {
    if (text.starts_with(kSentencePieceBlank) || text.starts_with(' ')) {
      // The model takes blanks off the beginning of a text, so that it gets one in front of them.
      std::vector<int32_t> all;
      model_->Encode(Concat(config_.unk_token, text), &all, /*dummy_prefix=*/false);
      const size_t skipped = all.size() >= unk_length_ ? unk_length_ : 0;
      ids->insert(ids->end(), all.begin() + static_cast<ptrdiff_t>(skipped), all.end());
    } else {
      model_->Encode(text, ids, /*dummy_prefix=*/false);
    }
  } else if (config_.family == SentencePieceFamily::kChatGlm) {
    model_->Encode(Prepare(text), ids);
  } else {
    model_->Encode(text, ids);
  }
  for (size_t i = first; i < ids->size(); ++i) (*ids)[i] = IdOfPiece((*ids)[i]);
}

void SentencePieceTokenizer::EncodeTo(std::string_view text, const EncodeOptions& options,
                                      std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  const size_t first = ids->size();
  std::string changed;
  if (bare_) {
    changed = Concat(config_.add_prefix_space ? kSentencePieceBlank : std::string_view(),
                     ReplacedAll(text, kSentencePieceBlank, " "));
    text = changed;
  } else if (config_.do_lower_case) {
    for (const TextPiece& piece : matcher_.Split(text, true)) {
      const AddedToken* token = piece.id >= 0 ? FindAdded(piece.id) : nullptr;
      changed += token != nullptr && (token->special || token->normalized) ? std::string(piece.text)
                                                                           : LowerCased(piece.text);
    }
    text = changed;
  }
  const std::vector<TextPiece> pieces = Cut(text, options.parse_special);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].id >= 0) {
      // The blank in front of the text is none of a special token's.
      if (bare_ && i == 1 && ids->size() == first + 1 && IsSpecial(pieces[i].id) &&
          model_->Find(kSentencePieceBlank) == PieceOfId(ids->back())) {
        ids->pop_back();
      }
      ids->push_back(pieces[i].id);
    } else {
      EncodePart(pieces[i].text, ids);
    }
  }
}

uint64_t SentencePieceTokenizer::Fingerprint() const {
  const uint64_t hash =
      HashBytes(Concat("sentencepiece", static_cast<int>(config_.family), config_.legacy,
                       config_.add_prefix_space, config_.do_lower_case, config_.remove_space,
                       config_.keep_accents, config_.num_image_tokens, config_.unk_token));
  return HashTokens(added_, HashBytes(config_.model, hash));
}

}  // namespace tessera::data
