// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/python_text.h"
#include "base/utf8.h"
#include "core/execution_context.h"
#include "core/thread_pool.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/pipeline_post_processor.h"

namespace tessera::data {
namespace {

using nlohmann::json;

// Texts are encoded in chunks of this many bytes, each by one thread.
constexpr size_t kChunkBytes = 256 << 10;

// Where a chunk of at least kChunkBytes may end: the first place behind them where GPT-2's pattern
// has a border for certain, or the end of the text.
size_t ChunkEnd(std::string_view text, size_t begin) {
  for (size_t i = begin + kChunkBytes; i < text.size(); ++i) {
    if (Gpt2MayCutAt(text, i)) return i;
  }
  return text.size();
}

constexpr std::string_view kNotThere = " is not in the vocabulary";

// What one of BERT's pieces adds to a text.
std::string BertText(std::string_view piece) {
  constexpr std::string_view kPrefix = "##";
  const bool continues = piece.starts_with(kPrefix) && piece.size() > kPrefix.size();
  return continues ? std::string(piece.substr(kPrefix.size())) : Concat(" ", piece);
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Create(TokenizerDescription description) {
  std::unique_ptr<PipelineTokenizer> result(new PipelineTokenizer(description.tokenizer_class));
  TESSERA_RETURN_IF_ERROR(result->Build(std::move(description)));
  return std::unique_ptr<Tokenizer>(std::move(result));
}

Status PipelineTokenizer::Build(TokenizerDescription description) {
  TokenizerJsonFile& file = description.json;
  TESSERA_RETURN_IF_ERROR(ReadParts(JsonPart(file.root, description.path), &file.large));
  TESSERA_RETURN_IF_ERROR(AddDeclared(&description));
  TESSERA_RETURN_IF_ERROR(NameTokens(description));
  if (class_ == TokenizerClass::kBert) SetBertRows();
  if (class_ == TokenizerClass::kRoberta) SetRobertaRows();
  TESSERA_RETURN_IF_ERROR(SetRowEnds(description));
  SetMatchers();
  FillTokenBytes();
  clean_up_spaces_ = description.clean_up_spaces;
  split_special_ = description.split_special;
  if (class_ == TokenizerClass::kGeneral) {
    json_text_ = std::move(file.text);
    return OkStatus();
  }
  if (file.large) merges_ = std::move(file.large->merges);
  file.root["model"].erase("vocab");
  file.root["model"].erase("merges");
  json_ = std::move(file.root);
  return OkStatus();
}

Status PipelineTokenizer::ReadParts(const JsonPart& root,
                                    std::optional<TokenizerJsonFile::LargeParts>* large) {
  TESSERA_ASSIGN_OR_RETURN(model_, PipelineModel::Parse(root["model"], large));
  TESSERA_ASSIGN_OR_RETURN(normalizer_, PipelineNormalizer::Parse(root["normalizer"]));
  TESSERA_ASSIGN_OR_RETURN(splitter_, PipelineSplitter::Parse(root["pre_tokenizer"]));
  splitter_.set_as_bytes(splitter_.ends_in_bytes() && model_->TakeBytes());
  TESSERA_ASSIGN_OR_RETURN(decoder_, PipelineDecoder::Parse(root["decoder"]));
  TESSERA_ASSIGN_OR_RETURN(added_, ReadAddedTokens(root["added_tokens"]));
  if (is_byte_level()) return OkStatus();
  RowTemplate single{.items = {{RowTemplate::kFirst, 0}}};
  RowTemplate pair{.items = {{RowTemplate::kFirst, 0}, {RowTemplate::kSecond, 1}}};
  const JsonPart processor = root["post_processor"];
  if (!processor.is_null()) {
    TESSERA_RETURN_IF_ERROR(ReadPostProcessor(processor, &single, &pair));
  }
  set_rows(std::move(single), std::move(pair), /*of_prompts=*/true);
  return OkStatus();
}

Status PipelineTokenizer::AddDeclared(TokenizerDescription* description) {
  DeclaredTokens& declared = description->declared;
  if (class_ == TokenizerClass::kRoberta) {
    // RoBERTa's mask takes the blank before it along.
    for (auto& [key, token] : declared.named) token.lstrip |= key == "mask_token";
  }
  const PipelineVocab& vocab = model_->vocab();
  declared.AddTo([&](const std::string& piece) { return vocab.Find(piece); }, vocab.size(),
                 &added_);
  SortById(&added_);
  for (const AddedToken& token : added_) {
    if (token.id < 0 || token.id >= kMaxTokenId) {
      return InvalidArgument(description->path, ": added token ", token.content, " has id ",
                             token.id, ", which is not in [0, ", kMaxTokenId, ")");
    }
    if (!is_byte_level()) continue;
    const std::string_view piece = vocab.Piece(token.id);
    const std::optional<int32_t> id = vocab.Find(token.content);
    if (id && *id != token.id) {
      return InvalidArgument(description->path, ": added token ", token.content, " has id ",
                             token.id, " and in the vocabulary ", *id);
    }
    if (!id && !piece.empty()) {
      return InvalidArgument(description->path, ": id ", token.id, " is given to two tokens, ",
                             piece, " and ", token.content);
    }
  }
  return OkStatus();
}

std::optional<int32_t> PipelineTokenizer::IdOf(std::string_view text) const {
  const AddedToken* const added = FindByContent(added_, text);
  return added != nullptr ? added->id : model_->vocab().Find(text);
}

// Of a token with a role that no file names.
std::string PipelineTokenizer::DefaultName(std::string_view key, bool is_file) const {
  struct Names {
    std::string_view key, of_roberta, of_bert;
  };
  constexpr Names kNames[] = {{"eos_token", "</s>", ""},         {"bos_token", "<s>", ""},
                              {"pad_token", "<pad>", "[PAD]"},   {"cls_token", "<s>", "[CLS]"},
                              {"sep_token", "</s>", "[SEP]"},    {"unk_token", "<unk>", "[UNK]"},
                              {"mask_token", "<mask>", "[MASK]"}};
  const auto names = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Names& role) { return role.key == key; });
  if (class_ == TokenizerClass::kRoberta) return std::string(names->of_roberta);
  if (class_ == TokenizerClass::kBert) {
    const std::vector<RowTemplate::Item>& row = row_template(/*pair=*/true)->items;
    std::string_view name;
    if (is_file && key == "cls_token") name = TokenText(row.front().id);
    if (is_file && key == "sep_token") name = TokenText(row.back().id);
    return std::string(name.empty() ? names->of_bert : name);
  }
  return class_ == TokenizerClass::kGpt2 && key == "eos_token" ? std::string(kEndOfText) : "";
}

Status PipelineTokenizer::NameTokens(const TokenizerDescription& description) {
  const bool bert = class_ == TokenizerClass::kBert;
  const bool roberta = class_ == TokenizerClass::kRoberta;
  std::optional<int32_t> unk_id;
  using Role = std::pair<const char*, std::optional<int32_t>*>;
  std::vector<Role> roles = {{"eos_token", &eos_id_}, {"bos_token", &bos_id_}};
  if (bert) roles = {{"unk_token", &unk_id}};
  roles.emplace_back("pad_token", &pad_id_);
  if (class_ != TokenizerClass::kGpt2) {
    for (const Role& role : {Role("cls_token", &cls_id_), Role("sep_token", &sep_id_),
                             Role("mask_token", &mask_id_)}) {
      roles.push_back(role);
    }
  }
  if (roberta) roles.emplace_back("unk_token", &unk_id);
  for (const auto& [key, id] : roles) {
    const std::string* named = description.declared.NameOf(key);
    if (id == &unk_id && !model_->unk_token().empty() && (roberta || named == nullptr)) {
      named = &model_->unk_token();
    }
    const std::string name = named ? *named : DefaultName(key, description.is_file);
    if (name.empty()) continue;
    *id = IdOf(name);
    const bool may_lack = class_ == TokenizerClass::kGpt2 ||
                          (bert && description.is_file && (id == &pad_id_ || id == &mask_id_));
    if (!*id && !named && may_lack) continue;
    if (!*id) return InvalidArgument(description.path, ": ", key, " ", name, kNotThere);
    if (id == &unk_id) model_->set_unk(name, **id);
    // Tokens with a role are found in text as if they had been added.
    const bool lstrip = roberta && id == &mask_id_;
    if (FindByContent(added_, name) == nullptr) {
      added_.push_back({.content = name, .id = **id, .lstrip = lstrip});
    }
  }
  if (unk_id || model_->unk_token().empty()) return OkStatus();
  const std::string unk = model_->unk_token();
  const std::optional<int32_t> piece = model_->vocab().Find(unk);
  const std::optional<int32_t> found = piece ? piece : IdOf(unk);
  if (!found) return InvalidArgument(description.path, ": unk_token ", unk, kNotThere);
  model_->set_unk(unk, *found);
  return OkStatus();
}

// As transformers 4 builds the rows of Llama's and Gemma's classes: [bos] A [eos] [bos] B [eos].
Status PipelineTokenizer::SetRowEnds(const TokenizerDescription& description) {
  const RowTemplate* const single = row_template(/*pair=*/false);
  if (single == nullptr) return OkStatus();
  const auto id_of = [this](const RowEnd& end, const std::optional<int32_t>& named) {
    return named || !end.adds ? named : IdOf(end.usual_name);
  };
  const std::optional<int32_t> bos_id = id_of(description.bos, bos_id_);
  const std::optional<int32_t> eos_id = id_of(description.eos, eos_id_);
  const bool has_bos = bos_id && single->items.front().id == *bos_id;
  const bool has_eos = eos_id && single->items.back().id == *eos_id;
  const bool bos = description.bos.adds.value_or(has_bos);
  const bool eos = description.eos.adds.value_or(has_eos);
  if (bos == has_bos && eos == has_eos) return OkStatus();
  if ((bos && !bos_id) || (eos && !eos_id)) {
    const char* const which = bos && !bos_id ? "bos_token" : "eos_token";
    return InvalidArgument(description.path, ": tokenizer_config.json has 'add_", which,
                           "': true and no '", which, "'");
  }
  const auto add = [&](int32_t text, int32_t type, RowTemplate* row) {
    if (bos) row->items.push_back({*bos_id, type});
    row->items.push_back({text, type});
    if (eos) row->items.push_back({*eos_id, type});
  };
  RowTemplate one;
  add(RowTemplate::kFirst, 0, &one);
  RowTemplate two = one;
  add(RowTemplate::kSecond, 1, &two);
  set_rows(std::move(one), std::move(two), /*of_prompts=*/true);
  row_ends_ = Concat("rows", bos ? " bos" : "", eos ? " eos" : "");
  return OkStatus();
}

void PipelineTokenizer::SetMatchers() {
  SortById(&added_);
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  std::vector<SpecialToken> specials;
  for (const AddedToken& token : added_) {
    if (token.special) specials.push_back({token.content, token.id});
    AddedToken copy = token;
    copy.normalized = false;
    if (token.normalized) copy.content = normalizer_.Normalize(ReplaceInvalidUtf8(token.content));
    if (!copy.content.empty()) (token.normalized ? normalized : raw).push_back(copy);
  }
  matcher_ = AddedTokenMatcher(raw);
  normalized_matcher_ = AddedTokenMatcher(normalized);
  set_special_tokens(std::move(specials));
}

std::string_view PipelineTokenizer::TokenText(int32_t id) const {
  const AddedToken* const added = FindById(added_, id);
  return added != nullptr ? added->content : model_->vocab().Piece(id);
}

void PipelineTokenizer::FillTokenBytes() {
  int64_t count = model_->vocab().size();
  if (!added_.empty()) count = std::max<int64_t>(count, added_.back().id + 1);
  token_bytes_.resize(static_cast<size_t>(count));
  if (class_ == TokenizerClass::kGeneral) return FillDecodedBytes();
  const PipelineVocab& vocab = model_->vocab();
  ParallelFor(count, /*grain=*/4096, [&](int64_t begin, int64_t end) {
    for (auto id = static_cast<int32_t>(begin); id < end; ++id) {
      const std::string_view piece = vocab.Piece(id);
      std::string& bytes = token_bytes_[static_cast<size_t>(id)];
      if (piece.empty()) continue;
      if (!is_byte_level()) {
        bytes = BertText(piece);
      } else if (std::optional<std::string> plain = BytesOfPiece(piece)) {
        bytes = *std::move(plain);
      } else {
        bytes = piece;
      }
    }
  });
  for (const AddedToken& token : added_) {
    token_bytes_[static_cast<size_t>(token.id)] =
        is_byte_level() ? token.content : " " + token.content;
  }
}

// A token behind another one is what it adds to the text of that one.
void PipelineTokenizer::FillDecodedBytes() {
  first_token_bytes_.resize(token_bytes_.size());
  const PipelineVocab& vocab = model_->vocab();
  std::string before;
  for (int32_t id = 0; id < vocab.size() && before.empty(); ++id) {
    const std::string_view piece = vocab.Piece(id);
    if (piece.size() == 1 && piece[0] >= 'a' && piece[0] <= 'z') before = piece;
  }
  const std::string alone = decoder_.Decode({before});
  for (size_t id = 0; id < token_bytes_.size(); ++id) {
    const std::string piece(TokenText(static_cast<int32_t>(id)));
    if (piece.empty()) continue;
    if (piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>' &&
        decoder_.Decode({piece}) != piece) {
      const int byte = std::stoi(piece.substr(3, 2), nullptr, 16);
      token_bytes_[id] = first_token_bytes_[id] = std::string(1, static_cast<char>(byte));
      continue;
    }
    first_token_bytes_[id] = decoder_.Decode({piece});
    const std::string behind = decoder_.Decode({before, piece});
    token_bytes_[id] =
        behind.starts_with(alone) ? behind.substr(alone.size()) : first_token_bytes_[id];
  }
}

std::string_view PipelineTokenizer::TokenBytes(int32_t id) const {
  return id >= 0 && id < vocab_size() ? token_bytes_[static_cast<size_t>(id)] : std::string_view();
}

std::string_view PipelineTokenizer::FirstTokenBytes(int32_t id) const {
  if (first_token_bytes_.empty() || id < 0 || id >= vocab_size()) return TokenBytes(id);
  return first_token_bytes_[static_cast<size_t>(id)];
}

void PipelineTokenizer::EncodeChunk(std::string_view text, bool at_begin,
                                    std::vector<int32_t>* ids) const {
  std::unique_ptr<WordCache> pooled = caches_.Take();
  WordCache* const cache = pooled.get();
  std::vector<int32_t> word_ids;
  // Most words are in the cache: a call for each would be felt.
  const auto encode =
      [ this, cache, ids, &word_ids ](std::string_view word) __attribute__((always_inline)) {
    const bool is_short = word.size() <= WordCache::kMaxWordBytes;
    const WordCache::Key key(is_short ? word : std::string_view(""));
    if (is_short) {
      if (const WordCache::Entry* entry = cache->Find(key)) {
        for (int32_t i = 0; i < entry->count; ++i) ids->push_back(entry->ids[i]);  // mostly one
        return;
      }
    }
    StopIfCancelled();
    model_->Encode(word, &word_ids);
    ids->insert(ids->end(), word_ids.begin(), word_ids.end());
    const auto count = static_cast<int>(word_ids.size());
    if (is_short && count <= WordCache::kMaxIds) cache->Insert(key, word_ids.data(), count);
  };
  splitter_.ForEachWord(text, at_begin, encode);
  caches_.Return(std::move(pooled));
}

void PipelineTokenizer::EncodeText(std::string_view text, bool at_begin,
                                   std::vector<int32_t>* ids) const {
  std::string with_blank;
  text = splitter_.WithBlank(text, &with_blank);
  if (text.size() <= kChunkBytes || !splitter_.splits_as_gpt2()) {
    return EncodeChunk(text, at_begin, ids);
  }
  std::vector<std::string_view> chunks;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = ChunkEnd(text, begin);
    chunks.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  std::vector<std::vector<int32_t>> chunk_ids(chunks.size());
  ParallelFor(std::ssize(chunks), /*grain=*/1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) EncodeChunk(chunks[i], at_begin, &chunk_ids[i]);
  });
  for (const std::vector<int32_t>& part : chunk_ids) {
    ids->insert(ids->end(), part.begin(), part.end());
  }
}

void PipelineTokenizer::EncodeTo(std::string_view text, const EncodeOptions& options,
                                 std::vector<int32_t>* ids) const {
  const bool parse_special = options.parse_special && !split_special_;
  std::string valid;
  if (!is_byte_level() && FindInvalidUtf8(text) != kNoInvalidUtf8) {
    valid = ReplaceInvalidUtf8(text);
    text = valid;
  }
  for (const TextPiece& piece : matcher_.Split(text, parse_special)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
      continue;
    }
    bool at_begin = piece.text.data() == text.data();
    std::string storage;
    std::string_view normalized = piece.text;
    if (!normalizer_.changes_nothing()) {
      normalized = storage = normalizer_.Normalize(piece.text, &at_begin);
    }
    for (const TextPiece& part : normalized_matcher_.Split(normalized, parse_special)) {
      if (part.id >= 0) {
        ids->push_back(part.id);
      } else {
        EncodeText(part.text, at_begin, ids);
      }
      at_begin = false;
    }
  }
}

std::string PipelineTokenizer::Decode(std::span<const int32_t> ids,
                                      const DecodeOptions& options) const {
  if (is_byte_level()) {
    std::string text = Tokenizer::Decode(ids, options);
    if (clean_up_spaces_.value_or(false)) CleanUpSpaces(&text);
    return text;
  }
  if (class_ == TokenizerClass::kBert && clean_up_spaces_.value_or(true)) {
    std::string text = Tokenizer::Decode(ids, options);
    if (text.starts_with(' ')) text.erase(0, 1);
    CleanUpSpaces(&text);
    return text;
  }
  std::vector<std::string> pieces;
  for (const int32_t id : ids) {
    if (options.skip_special && IsSpecial(id)) continue;
    const std::string_view piece = TokenText(id);
    if (!piece.empty()) pieces.emplace_back(piece);
  }
  if (pieces.empty()) return "";
  std::string text = decoder_.Decode(std::move(pieces));
  if (clean_up_spaces_.value_or(false)) CleanUpSpaces(&text);
  return text;
}

}  // namespace tessera::data
