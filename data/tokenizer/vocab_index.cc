// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/vocab_index.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/utf8.h"

namespace tessera::data {
namespace {

uint64_t HashOf(std::string_view text) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u;
  uint64_t hash = text.size() * kFactor;
  while (!text.empty()) {
    uint64_t word = 0;
    const size_t bytes = text.size() < 8 ? text.size() : 8;
    std::memcpy(&word, text.data(), bytes);
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 29;
    text.remove_prefix(bytes);
  }
  hash *= kFactor;
  return hash ^ hash >> 32;
}

}  // namespace

VocabIndex::VocabIndex(const VocabEntries* vocab) : vocab_(vocab) {
  size_t size = 16;
  while (size < 2 * vocab->size()) size *= 2;
  slots_.assign(size, Slot{});
  uint64_t hashes[kAtOnce];
  for (size_t begin = 0; begin < vocab->size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, vocab->size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = HashOf((*vocab)[begin + i].first);
      __builtin_prefetch(&slots_[Home(hashes[i])]);
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string& piece = (*vocab)[begin + i].first;
      Slot& slot = slots_[SlotOf(piece, hashes[i])];
      if (slot.place != kEmpty) {
        twice_ = &piece;
        continue;
      }
      slot = {static_cast<uint32_t>(hashes[i]), static_cast<int32_t>(begin + i)};
    }
  }
}

size_t VocabIndex::SlotOf(std::string_view piece, uint64_t hash) const {
  for (size_t i = Home(hash);; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.place == kEmpty) return i;
    if (slot.hash != static_cast<uint32_t>(hash)) continue;
    if ((*vocab_)[static_cast<size_t>(slot.place)].first == piece) return i;
  }
}

int32_t VocabIndex::IdAt(const Slot& slot) const {
  return slot.place == kEmpty ? -1 : (*vocab_)[static_cast<size_t>(slot.place)].second;
}

std::optional<int32_t> VocabIndex::Find(std::string_view piece) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[SlotOf(piece, HashOf(piece))];
  return slot.place == kEmpty ? std::nullopt : std::optional(IdAt(slot));
}

void VocabIndex::FindAll(std::span<const std::string_view> pieces, int32_t* ids) const {
  TESSERA_CHECK(pieces.size() <= kAtOnce, "vocabulary", pieces.size(), " pieces at once");
  if (slots_.empty()) {
    std::fill_n(ids, pieces.size(), -1);
    return;
  }
  uint64_t hashes[kAtOnce];
  for (size_t i = 0; i < pieces.size(); ++i) {
    hashes[i] = HashOf(pieces[i]);
    __builtin_prefetch(&slots_[Home(hashes[i])]);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Slot& slot = slots_[Home(hashes[i])];
    if (slot.place != kEmpty) __builtin_prefetch(&(*vocab_)[static_cast<size_t>(slot.place)]);
  }
  for (size_t i = 0; i < pieces.size(); ++i) ids[i] = IdAt(slots_[SlotOf(pieces[i], hashes[i])]);
}

std::optional<VocabEntries> ReadVocabJson(std::string_view text) {
  if (FindInvalidUtf8(text) != kNoInvalidUtf8) return std::nullopt;
  VocabEntries vocab;
  vocab.reserve(text.size() / 20);
  JsonReader reader(text);
  if (!reader.Take('{')) return std::nullopt;
  bool whole = reader.Take('}');
  while (!whole) {
    std::string piece;
    int32_t id = 0;
    if (!reader.ReadString(&piece) || !reader.Take(':') || !reader.ReadNumber(&id)) break;
    vocab.emplace_back(std::move(piece), id);
    if (!reader.Take(',')) {
      whole = reader.Take('}');
      break;
    }
  }
  return whole && reader.AtEnd() ? std::optional(std::move(vocab)) : std::nullopt;
}

}  // namespace tessera::data
