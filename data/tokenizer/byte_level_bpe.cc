// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/byte_level_bpe.h"

#include <algorithm>
#include <tuple>

#include "base/utf8.h"
#include "core/execution_context.h"
#include "core/thread_pool.h"
#include "data/tokenizer/gpt2_split.h"

namespace tessera::data {
namespace {

constexpr int32_t kMaxId = 1 << 22;
// Texts are encoded in chunks of this many bytes, each by one thread.
constexpr size_t kChunkBytes = 256 << 10;

// GPT-2's table (openai/gpt-2, src/encoder.py, bytes_to_unicode).
struct ByteAlphabet {
  std::array<std::string, 256> pieces;
  std::array<int, 0x144> bytes;  // by code point, -1 where none

  ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      const char32_t code_point = printable ? static_cast<char32_t>(b) : next++;
      AppendUtf8(code_point, &pieces[b]);
      bytes[code_point] = b;
    }
  }
};

const ByteAlphabet& Alphabet() {
  static const auto* const alphabet = new ByteAlphabet();
  return *alphabet;
}

// Where a chunk of at least kChunkBytes may end: the first place behind them where the splitting
// pattern has a border for certain, or the end of the text.
size_t ChunkEnd(std::string_view text, size_t begin) {
  for (size_t i = begin + kChunkBytes; i < text.size(); ++i) {
    if (Gpt2MayCutAt(text, i)) return i;
  }
  return text.size();
}

}  // namespace

const std::string& BytePiece(uint8_t byte) { return Alphabet().pieces[byte]; }

std::string PieceOfBytes(std::string_view bytes) {
  std::string piece;
  for (const char c : bytes) piece += BytePiece(static_cast<uint8_t>(c));
  return piece;
}

std::optional<std::string> BytesOfPiece(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size();) {
    if (piece[i] > 0x20 && piece[i] < 0x7F) {  // itself
      bytes.push_back(piece[i++]);
      continue;
    }
    const Utf8Char c = DecodeUtf8(piece, i);
    if (!c.valid || c.code_point >= Alphabet().bytes.size()) return std::nullopt;
    const int byte = Alphabet().bytes[c.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    i += c.length;
  }
  return bytes;
}

StatusOr<std::unique_ptr<ByteLevelBpe>> ByteLevelBpe::Create(ByteLevelBpeConfig config,
                                                             const std::string& source) {
  std::unique_ptr<ByteLevelBpe> bpe(new ByteLevelBpe(std::move(config)));
  TESSERA_RETURN_IF_ERROR(bpe->Build(source));
  return bpe;
}

Status ByteLevelBpe::AddToken(const std::string& piece, int32_t id, std::string bytes,
                              const std::string& source) {
  if (id < 0 || id >= kMaxId) {
    return InvalidArgument(source, ": token ", piece, " has id ", id, ", which is not in [0, ",
                           kMaxId, ")");
  }
  const auto index = static_cast<size_t>(id);
  if (index >= token_bytes_.size()) {
    token_bytes_.resize(index + 1);
    has_token_.resize(index + 1, false);
  }
  if (has_token_[index]) {
    return InvalidArgument(source, ": id ", id, " is given to two tokens, the second is ", piece);
  }
  has_token_[index] = true;
  token_bytes_[index] = std::move(bytes);
  return OkStatus();
}

std::optional<int32_t> ByteLevelBpe::IdOf(std::string_view piece) const {
  if (const auto id = vocab_ids_.Find(piece)) return id;
  if (added_ids_.empty()) return std::nullopt;
  const auto at = added_ids_.find(std::string(piece));
  return at == added_ids_.end() ? std::nullopt : std::optional(at->second);
}

Status ByteLevelBpe::BuildMerges(const std::string& source) {
  merges_ = BpeMerges(config_.merges.size());
  constexpr size_t kAtOnce = VocabIndex::kAtOnce / 2;
  std::string_view pieces[2 * kAtOnce];  // of each merge the left one and the right one
  int32_t ids[2 * kAtOnce];
  std::string both;
  size_t next = 0;  // most vocabularies are in the order of ids, and these in that of merges
  for (size_t begin = 0; begin < config_.merges.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, config_.merges.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      std::tie(pieces[2 * i], pieces[2 * i + 1]) = config_.merges[begin + i];
    }
    vocab_ids_.FindAll({pieces, 2 * count}, ids);
    for (size_t i = 0; i < count; ++i) merges_.Prefetch(ids[2 * i], ids[2 * i + 1]);
    for (size_t i = 0; i < count; ++i) {
      const auto& [left, right] = config_.merges[begin + i];
      both.assign(left).append(right);
      const bool follows = next < config_.vocab.size() && config_.vocab[next].first == both;
      const std::optional<int32_t> result =
          follows ? config_.vocab[next].second : vocab_ids_.Find(both);
      if (ids[2 * i] < 0 || ids[2 * i + 1] < 0 || !result) {
        const std::string& missing = ids[2 * i] < 0 ? left : ids[2 * i + 1] < 0 ? right : both;
        return InvalidArgument(source, ": merge ", begin + i, " (", left, " ", right,
                               ") needs the token ", missing, ", which the vocabulary lacks");
      }
      next = static_cast<size_t>(*result) + 1;
      merges_.Add(ids[2 * i], ids[2 * i + 1], static_cast<int32_t>(begin + i), *result);
    }
  }
  return OkStatus();
}

Status ByteLevelBpe::BuildSpecials(const std::string& source) {
  const auto named = [&](const std::optional<std::string>& name, const char* key,
                         std::optional<int32_t>* id) -> Status {
    if (!name) return OkStatus();
    *id = IdOf(*name);
    if (*id) return OkStatus();
    return InvalidArgument(source, ": ", key, " ", *name, " is not in the vocabulary");
  };
  if (!config_.eos_token && IdOf(std::string(kEndOfText))) config_.eos_token = kEndOfText;
  TESSERA_RETURN_IF_ERROR(named(config_.eos_token, "eos_token", &eos_id_));
  TESSERA_RETURN_IF_ERROR(named(config_.bos_token, "bos_token", &bos_id_));
  TESSERA_RETURN_IF_ERROR(named(config_.pad_token, "pad_token", &pad_id_));
  TESSERA_RETURN_IF_ERROR(named(config_.cls_token, "cls_token", &cls_id_));
  TESSERA_RETURN_IF_ERROR(named(config_.sep_token, "sep_token", &sep_id_));
  TESSERA_RETURN_IF_ERROR(named(config_.mask_token, "mask_token", &mask_id_));
  if (config_.roberta) SetRobertaRows();
  std::optional<int32_t> unk_id;
  TESSERA_RETURN_IF_ERROR(named(config_.unk_token, "unk_token", &unk_id));
  unk_id_ = unk_id.value_or(-1);

  // Named special tokens are found in text as if they had been added.
  for (const auto& name : {config_.eos_token, config_.bos_token, config_.pad_token,
                           config_.cls_token, config_.sep_token, config_.mask_token,
                           config_.roberta ? config_.unk_token : std::nullopt}) {
    const bool added =
        !name || std::any_of(config_.added_tokens.begin(), config_.added_tokens.end(),
                             [&](const AddedToken& token) { return token.content == *name; });
    if (added) continue;
    // RoBERTa's mask takes the blank before it along.
    config_.added_tokens.push_back({.content = *name,
                                    .id = *IdOf(*name),
                                    .lstrip = config_.roberta && name == config_.mask_token});
  }
  std::stable_sort(config_.added_tokens.begin(), config_.added_tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::vector<SpecialToken> specials;
  for (const AddedToken& token : config_.added_tokens) {
    if (token.special) specials.push_back({token.content, token.id});
  }
  set_special_tokens(std::move(specials));
  matcher_ = AddedTokenMatcher(config_.added_tokens);
  return OkStatus();
}

Status ByteLevelBpe::BuildTokens(const std::string& source) {
  token_bytes_.reserve(config_.vocab.size() + config_.added_tokens.size());
  for (const auto& [piece, id] : config_.vocab) {
    TESSERA_RETURN_IF_ERROR(AddToken(piece, id, BytesOfPiece(piece).value_or(piece), source));
  }
  return OkStatus();
}

Status ByteLevelBpe::BuildIndex(const std::string& source) {
  vocab_ids_ = VocabIndex(&config_.vocab);
  if (const std::string* twice = vocab_ids_.twice()) {
    return InvalidArgument(source, ": token ", *twice, " has two ids");
  }
  return BuildMerges(source);
}

Status ByteLevelBpe::Build(const std::string& source) {
  Status parts[2];  // neither reads what the other writes
  ParallelFor(2, /*grain=*/1, [&](int64_t part, int64_t) {
    parts[part] = part == 0 ? BuildTokens(source) : BuildIndex(source);
  });
  for (const Status& part : parts) TESSERA_RETURN_IF_ERROR(part);
  byte_ids_.fill(-1);
  for (int b = 0; b < 256; ++b) {
    if (const auto id = IdOf(BytePiece(static_cast<uint8_t>(b)))) byte_ids_[b] = *id;
  }
  if (config_.ignore_merges) {
    for (const auto& [piece, id] : config_.vocab) {
      if (auto bytes = BytesOfPiece(piece)) word_ids_.emplace(std::move(*bytes), id);
    }
  }
  for (const AddedToken& token : config_.added_tokens) {
    const auto id = IdOf(token.content);
    if (!id) {
      TESSERA_RETURN_IF_ERROR(AddToken(token.content, token.id, token.content, source));
      added_ids_.emplace(token.content, token.id);
    } else if (*id == token.id) {
      token_bytes_[static_cast<size_t>(*id)] = token.content;
    } else {
      return InvalidArgument(source, ": added token ", token.content, " has id ", token.id,
                             " and in the vocabulary ", *id);
    }
  }
  return BuildSpecials(source);
}

std::string_view ByteLevelBpe::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return token_bytes_[static_cast<size_t>(id)];
}

void ByteLevelBpe::EncodeWord(std::string_view word, std::vector<int32_t>* word_ids) const {
  StopIfCancelled();
  word_ids->clear();
  if (config_.ignore_merges) {
    const auto at = word_ids_.find(std::string(word));
    if (at != word_ids_.end()) {
      word_ids->push_back(at->second);
      return;
    }
  }
  bool after_unk = false;
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    const bool unk = id < 0;
    if (!unk) {
      word_ids->push_back(id);
    } else if (unk_id_ >= 0 && !(config_.fuse_unk && after_unk)) {
      word_ids->push_back(unk_id_);
    }
    after_unk = unk;
  }
  merges_.Apply(word_ids);
}

void ByteLevelBpe::EncodeChunk(std::string_view text, WordCache* cache,
                               std::vector<int32_t>* ids) const {
  std::vector<int32_t> word_ids;
  if (!config_.use_regex) {
    EncodeWord(text, &word_ids);
    ids->insert(ids->end(), word_ids.begin(), word_ids.end());
    return;
  }
  Gpt2Splitter splitter(text);
  std::string_view word;
  while (splitter.Next(&word)) {
    if (word.size() > WordCache::kMaxWordBytes) {
      EncodeWord(word, &word_ids);
      ids->insert(ids->end(), word_ids.begin(), word_ids.end());
      continue;
    }
    const WordCache::Key key(word);
    if (const WordCache::Entry* entry = cache->Find(key)) {
      ids->insert(ids->end(), entry->ids, entry->ids + entry->count);
      continue;
    }
    EncodeWord(word, &word_ids);
    ids->insert(ids->end(), word_ids.begin(), word_ids.end());
    const int count = static_cast<int>(word_ids.size());
    if (count <= WordCache::kMaxIds) cache->Insert(key, word_ids.data(), count);
  }
}

void ByteLevelBpe::EncodeText(std::string_view text, std::vector<int32_t>* ids) const {
  std::string with_space;
  if (config_.add_prefix_space && !text.starts_with(' ')) {
    with_space.reserve(text.size() + 1);
    with_space += ' ';
    with_space += text;
    text = with_space;
  }
  if (text.size() <= kChunkBytes || !config_.use_regex) {
    std::unique_ptr<WordCache> cache = caches_.Take();
    EncodeChunk(text, cache.get(), ids);
    caches_.Return(std::move(cache));
    return;
  }
  std::vector<std::string_view> chunks;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = ChunkEnd(text, begin);
    chunks.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  std::vector<std::vector<int32_t>> chunk_ids(chunks.size());
  ParallelFor(std::ssize(chunks), /*grain=*/1, [&](int64_t begin, int64_t end) {
    std::unique_ptr<WordCache> cache = caches_.Take();
    for (int64_t i = begin; i < end; ++i) EncodeChunk(chunks[i], cache.get(), &chunk_ids[i]);
    caches_.Return(std::move(cache));
  });
  for (const std::vector<int32_t>& part : chunk_ids) {
    ids->insert(ids->end(), part.begin(), part.end());
  }
}

void ByteLevelBpe::EncodeTo(std::string_view text, const EncodeOptions& options,
                            std::vector<int32_t>* ids) const {
  for (const TextPiece& piece : matcher_.Split(text, options.parse_special)) {
    if (piece.id >= 0) {
      ids->push_back(piece.id);
    } else {
      EncodeText(piece.text, ids);
    }
  }
}

uint64_t ByteLevelBpe::Fingerprint() const {
  uint64_t hash = HashBytes("ByteLevelBpe");
  const auto mix = [&hash](std::string_view text) {
    hash = HashBytes(text, HashBytes(std::to_string(text.size()) + ":", hash));
  };
  std::vector<std::pair<int32_t, const std::string*>> by_id;
  for (const auto& [piece, id] : config_.vocab) by_id.emplace_back(id, &piece);
  std::sort(by_id.begin(), by_id.end());
  for (const auto& [id, piece] : by_id) {
    mix(std::to_string(id));
    mix(*piece);
  }
  for (const auto& [left, right] : config_.merges) {
    mix(left);
    mix(right);
  }
  for (const AddedToken& token : config_.added_tokens) {
    mix(token.content);
    mix(Concat(token.id, token.special, token.lstrip, token.rstrip, token.normalized,
               token.single_word ? "word" : ""));
  }
  mix(Concat(config_.add_prefix_space, config_.use_regex, config_.ignore_merges, config_.fuse_unk,
             unk_id_, " ", eos_id_.value_or(-1)));
  return hash;
}

}  // namespace tessera::data
