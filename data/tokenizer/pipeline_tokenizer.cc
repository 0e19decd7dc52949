// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/pipeline_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "base/python_text.h"
#include "base/utf8.h"
#include "core/execution_context.h"
#include "data/tokenizer/declared_tokens.h"
#include "data/tokenizer/pipeline_post_processor.h"

namespace tessera::data {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 1 << 22;

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> PipelineTokenizer::Load(const std::string& folder) {
  std::unique_ptr<PipelineTokenizer> result(new PipelineTokenizer());
  const std::string path = JoinPath(folder, "tokenizer.json");
  TESSERA_ASSIGN_OR_RETURN(result->json_, ReadFile(path));
  TESSERA_ASSIGN_OR_RETURN(const json root, ParseJson(result->json_, path));
  if (!root.is_object()) return InvalidArgument(path, ": not a JSON object");
  TESSERA_RETURN_IF_ERROR(result->ReadTokenizer(JsonPart(root, path)));
  TESSERA_RETURN_IF_ERROR(result->TakeDeclared(folder));
  result->SetMatchers();
  result->FillTokenBytes();
  return std::unique_ptr<Tokenizer>(std::move(result));
}

Status PipelineTokenizer::ReadTokenizer(const JsonPart& root) {
  TESSERA_ASSIGN_OR_RETURN(model_, PipelineModel::Parse(root["model"]));
  TESSERA_ASSIGN_OR_RETURN(normalizer_, PipelineNormalizer::Parse(root["normalizer"]));
  TESSERA_ASSIGN_OR_RETURN(splitter_, PipelineSplitter::Parse(root["pre_tokenizer"]));
  TESSERA_ASSIGN_OR_RETURN(decoder_, PipelineDecoder::Parse(root["decoder"]));
  TESSERA_ASSIGN_OR_RETURN(added_, ReadAddedTokens(root["added_tokens"]));
  RowTemplate single{.items = {{RowTemplate::kFirst, 0}}};
  RowTemplate pair{.items = {{RowTemplate::kFirst, 0}, {RowTemplate::kSecond, 1}}};
  const JsonPart processor = root["post_processor"];
  if (!processor.is_null()) {
    TESSERA_RETURN_IF_ERROR(ReadPostProcessor(processor, &single, &pair));
  }
  set_rows(std::move(single), std::move(pair), /*of_prompts=*/true);
  return OkStatus();
}

void PipelineTokenizer::SetMatchers() {
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
  std::stable_sort(added_.begin(), added_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  matcher_ = AddedTokenMatcher(raw);
  normalized_matcher_ = AddedTokenMatcher(normalized);
  set_special_tokens(std::move(specials));
}

Status PipelineTokenizer::TakeDeclared(const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const DeclaredTokens declared, ReadDeclaredTokens(folder));
  const PipelineVocab& vocab = model_->vocab();
  const auto find = [&](const std::string& piece) { return vocab.Find(piece); };
  declared.AddTo(find, std::ssize(vocab.pieces()), &added_);
  for (const AddedToken& token : added_) {
    if (token.id < kMaxId) continue;
    return InvalidArgument(folder, ": added token ", token.content, " has id ", token.id,
                           ", which is not in [0, ", kMaxId, ")");
  }
  const std::pair<const char*, std::optional<int32_t>*> roles[] = {
      {"bos_token", &bos_id_}, {"eos_token", &eos_id_}, {"pad_token", &pad_id_},
      {"cls_token", &cls_id_}, {"sep_token", &sep_id_}, {"mask_token", &mask_id_}};
  for (const auto& [key, id] : roles) {
    const std::string* const name = declared.NameOf(key);
    if (name == nullptr) continue;
    *id = std::find_if(added_.begin(), added_.end(), [&](const AddedToken& t) {
            return t.content == *name;
          })->id;
  }
  const std::string config_path = JoinPath(folder, "tokenizer_config.json");
  if (!PathExists(config_path)) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const json config, ReadJsonFile(config_path));
  return ReadMember(config, "clean_up_tokenization_spaces", config_path, &clean_up_spaces_);
}

std::string PipelineTokenizer::TokenString(int32_t id) const {
  const auto at = std::lower_bound(added_.begin(), added_.end(), id,
                                   [](const AddedToken& t, int32_t value) { return t.id < value; });
  if (at != added_.end() && at->id == id) return at->content;
  const std::vector<std::string>& pieces = model_->vocab().pieces();
  return id >= 0 && id < std::ssize(pieces) ? pieces[static_cast<size_t>(id)] : std::string();
}

void PipelineTokenizer::FillTokenBytes() {
  size_t count = model_->vocab().pieces().size();
  if (!added_.empty()) count = std::max(count, static_cast<size_t>(added_.back().id) + 1);
  token_bytes_.resize(count);
  first_token_bytes_.resize(count);
  // A token behind another one is what it adds to the text of that one.
  std::string before;
  for (size_t id = 0; id < model_->vocab().pieces().size() && before.empty(); ++id) {
    const std::string& piece = model_->vocab().pieces()[id];
    if (piece.size() == 1 && piece[0] >= 'a' && piece[0] <= 'z') before = piece;
  }
  const std::string alone = decoder_.Decode({before});
  for (size_t id = 0; id < count; ++id) {
    const std::string piece = TokenString(static_cast<int32_t>(id));
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
  if (id < 0 || id >= vocab_size()) return {};
  return token_bytes_[static_cast<size_t>(id)];
}

std::string_view PipelineTokenizer::FirstTokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return first_token_bytes_[static_cast<size_t>(id)];
}

void PipelineTokenizer::EncodeWord(std::string_view word, WordCache* cache,
                                   std::vector<int32_t>* ids) const {
  StopIfCancelled();
  if (word.size() > WordCache::kMaxWordBytes) return model_->Encode(word, ids);
  const WordCache::Key key(word);
  if (const WordCache::Entry* entry = cache->Find(key)) {
    ids->insert(ids->end(), entry->ids, entry->ids + entry->count);
    return;
  }
  const size_t before = ids->size();
  model_->Encode(word, ids);
  const auto count = static_cast<int>(ids->size() - before);
  if (count <= WordCache::kMaxIds) cache->Insert(key, ids->data() + before, count);
}

void PipelineTokenizer::EncodeTo(std::string_view text, const EncodeOptions& options,
                                 std::vector<int32_t>* ids) const {
  std::string valid;
  if (FindInvalidUtf8(text) != kNoInvalidUtf8) {
    valid = ReplaceInvalidUtf8(text);
    text = valid;
  }
  std::unique_ptr<WordCache> cache = caches_.Take();
  for (const TextPiece& piece : matcher_.Split(text, options.parse_special)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
      continue;
    }
    bool at_begin = piece.text.data() == text.data();
    const std::string normalized = normalizer_.Normalize(piece.text, &at_begin);
    for (const TextPiece& part : normalized_matcher_.Split(normalized, options.parse_special)) {
      if (part.id >= 0) {
        ids->push_back(part.id);
      } else {
        for (const std::string& word : splitter_.Split(part.text, at_begin)) {
          EncodeWord(word, cache.get(), ids);
        }
      }
      at_begin = false;
    }
  }
  caches_.Return(std::move(cache));
}

std::string PipelineTokenizer::Decode(std::span<const int32_t> ids,
                                      const DecodeOptions& options) const {
  std::vector<std::string> pieces;
  for (const int32_t id : ids) {
    if (options.skip_special && IsSpecial(id)) continue;
    std::string piece = TokenString(id);
    if (!piece.empty()) pieces.push_back(std::move(piece));
  }
  if (pieces.empty()) return "";
  std::string text = decoder_.Decode(pieces);
  if (clean_up_spaces_) CleanUpSpaces(&text);
  return text;
}

uint64_t PipelineTokenizer::Fingerprint() const {
  uint64_t hash = HashBytes(json_, HashBytes("pipeline"));
  for (const AddedToken& token : added_) {
    hash = HashBytes(Concat(token.content, token.id, token.normalized, token.lstrip, token.rstrip,
                            token.single_word ? "word" : ""),
                     hash);
  }
  return hash;
}

}  // namespace tessera::data
