// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/merge_segmenter.h"

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/utf8.h"
#include "core/execution_context.h"

namespace tessera::data {
namespace {

using Piece = SentencePieceSpec::Piece;

// Whether a "▁" follows something else in a piece.
bool HasInnerBlank(std::string_view piece) {
  while (piece.starts_with(kSentencePieceBlank)) piece.remove_prefix(kSentencePieceBlank.size());
  return piece.find(kSentencePieceBlank) != std::string_view::npos;
}

}  // namespace

MergeSegmenter::MergeSegmenter(const SentencePieceSpec& spec, const PieceIndex* index,
                               const ByteTrie* user_defined)
    : Segmenter(spec, index), pieces_(spec.pieces), user_defined_(user_defined) {
  AddMerges(spec);
  // What an unused piece is taken apart into depends on the whole text.
  ends_at_blanks_ = !makes_unused_;
  for (const Piece& piece : pieces_) {
    if (IsTextPiece(piece)) ends_at_blanks_ &= !HasInnerBlank(piece.text);
  }
}

// Pieces of one score have one rank: of those the leftmost is made first.
void MergeSegmenter::AddMerges(const SentencePieceSpec& spec) {
  std::map<float, int32_t, std::greater<>> ranks;
  for (const Piece& piece : spec.pieces) ranks.emplace(piece.score, 0);
  int32_t next_rank = 0;
  for (auto& [score, rank] : ranks) rank = next_rank++;
  // Lengths that a symbol may have: of a piece that is longer than all others, few cuts are tried.
  std::vector<bool> lengths(5, true);
  for (const Piece& piece : pieces_) {
    if (lengths.size() <= piece.text.size()) lengths.resize(piece.text.size() + 1);
    lengths[piece.text.size()] = true;
  }
  for (size_t id = 0; id < pieces_.size(); ++id) {
    const Piece& piece = pieces_[id];
    const std::string_view text = piece.text;
    // A user-defined piece is found before anything is merged.
    if (piece.type != Piece::kNormal && piece.type != Piece::kUnused) continue;
    for (size_t cut = AnnouncedUtf8Length(text, 0); cut < text.size();
         cut += AnnouncedUtf8Length(text, cut)) {
      if (!lengths[cut] || !lengths[text.size() - cut]) continue;
      const int32_t left = SymbolOf(text.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = SymbolOf(text.substr(cut));
      if (right < 0) continue;
      merges_.Add(left, right, ranks[piece.score], static_cast<int32_t>(id));
      makes_unused_ |= piece.type == Piece::kUnused;
    }
  }
}

int32_t MergeSegmenter::FindSymbol(std::string_view text) const {
  if (const auto id = index_->FindText(text)) {
    return pieces_[static_cast<size_t>(*id)].type == Piece::kUserDefined ? -1 : *id;
  }
  const auto at = characters_.find(text);
  return at == characters_.end() ? -1 : at->second;
}

int32_t MergeSegmenter::SymbolOf(std::string_view text) {
  const int32_t symbol = FindSymbol(text);
  if (symbol >= 0 || AnnouncedUtf8Length(text, 0) < text.size()) return symbol;
  const auto next = static_cast<int32_t>(pieces_.size() + characters_.size());
  return characters_.emplace(text, next).first->second;
}

size_t MergeSegmenter::PartEnd(std::string_view text, size_t begin) const {
  if (!ends_at_blanks_) return text.size();
  bool after_blank = true;
  for (size_t i = begin; i < text.size();) {
    const bool blank = text.substr(i).starts_with(kSentencePieceBlank);
    if (blank && !after_blank) return i;
    int32_t defined = -1;
    const size_t length = SymbolLength(*user_defined_, text, i, &defined);
    i += length;
    after_blank = blank && length == kSentencePieceBlank.size();
  }
  return text.size();
}

size_t MergeSegmenter::LengthOf(int32_t symbol, std::string_view text) const {
  const auto index = static_cast<size_t>(symbol);
  return index < pieces_.size() ? pieces_[index].text.size() : AnnouncedUtf8Length(text, 0);
}

void MergeSegmenter::AppendSymbol(int32_t symbol, std::string_view text,
                                  const BpeMerges::Parts& parts, std::vector<int32_t>* ids) const {
  const int32_t id = index_->FindOrUnknown(text);
  const auto made = parts.find(symbol);
  if (pieces_[static_cast<size_t>(id)].type != Piece::kUnused || made == parts.end()) {
    return Append(text, id, 0, ids);
  }
  const auto [left, right] = made->second;
  const size_t length = LengthOf(left, text);
  AppendSymbol(left, text.substr(0, length), parts, ids);
  AppendSymbol(right, text.substr(length), parts, ids);
}

void MergeSegmenter::EncodePart(std::string_view part, std::vector<int32_t>* ids) const {
  StopIfCancelled();
  // Characters in no piece, which nothing merges, share a symbol.
  const auto other = static_cast<int32_t>(pieces_.size() + characters_.size());
  std::vector<int32_t> symbols;
  for (size_t i = 0, length = 0; i < part.size(); i += length) {
    int32_t symbol = -1;
    length = SymbolLength(*user_defined_, part, i, &symbol);
    if (symbol < 0) symbol = FindSymbol(part.substr(i, length));
    symbols.push_back(symbol < 0 ? other : symbol);
  }
  BpeMerges::Parts parts;
  if (makes_unused_) {
    merges_.Apply(&symbols, &parts);
  } else {
    merges_.Apply(&symbols);
  }
  for (const int32_t symbol : symbols) {
    const size_t length = LengthOf(symbol, part);
    AppendSymbol(symbol, part.substr(0, length), parts, ids);
    part.remove_prefix(length);
  }
}

void MergeSegmenter::Encode(std::string_view text, std::vector<int32_t>* ids) const {
  const size_t first = ids->size();
  const auto append = [&](const int32_t* part, size_t count) {
    const bool joins =
        ids->size() > first && ids->back() == index_->unk_id() && *part == ids->back();
    ids->insert(ids->end(), part + (joins ? 1 : 0), part + count);
  };
  std::unique_ptr<WordCache> cache = caches_.Take();
  std::vector<int32_t> part_ids;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, PartEnd(text, 0));
    text.remove_prefix(part.size());
    const bool is_short = part.size() <= WordCache::kMaxWordBytes;
    const WordCache::Key key(is_short ? part : std::string_view(""));
    const WordCache::Entry* const entry = is_short ? cache->Find(key) : nullptr;
    if (entry != nullptr) {
      append(entry->ids, static_cast<size_t>(entry->count));
      continue;
    }
    part_ids.clear();
    EncodePart(part, &part_ids);
    if (is_short && part_ids.size() <= static_cast<size_t>(WordCache::kMaxIds)) {
      cache->Insert(key, part_ids.data(), static_cast<int>(part_ids.size()));
    }
    append(part_ids.data(), part_ids.size());
  }
  caches_.Return(std::move(cache));
}

}  // namespace tessera::data
