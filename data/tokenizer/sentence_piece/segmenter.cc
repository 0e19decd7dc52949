// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/segmenter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/utf8.h"
#include "data/tokenizer/sentence_piece/merge_segmenter.h"
#include "data/tokenizer/unigram.h"

namespace tessera::data {
namespace {

using Piece = SentencePieceSpec::Piece;

class UnigramSegmenter : public Segmenter {
 public:
  UnigramSegmenter(const SentencePieceSpec& spec, const PieceIndex* index)
      : Segmenter(spec, index) {
    constexpr float kUnknownPenalty = 10;
    float lowest = std::numeric_limits<float>::max();
    float highest = std::numeric_limits<float>::min();  // the library's: not the lowest float
    for (const Piece& piece : spec.pieces) {
      if (piece.type != Piece::kNormal) continue;
      lowest = std::min(lowest, piece.score);
      highest = std::max(highest, piece.score);
    }
    std::vector<ByteTrie::Entry> entries;
    std::vector<double> scores;
    for (size_t id = 0; id < spec.pieces.size(); ++id) {
      const Piece& piece = spec.pieces[id];
      const bool defined = piece.type == Piece::kUserDefined;
      // A user-defined piece is to be the best way through its text.
      scores.push_back(defined ? static_cast<float>(piece.text.size()) * highest - 0.1
                               : piece.score);
      if (defined || piece.type == Piece::kNormal) {
        entries.emplace_back(piece.text, static_cast<int32_t>(id));
      }
    }
    unigram_ = {std::move(entries), std::move(scores), lowest - kUnknownPenalty};
  }

  void Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    const size_t first = ids->size();
    std::vector<Unigram<float>::Piece> pieces;
    unigram_.Segment(text, &pieces);
    for (const auto& [begin, end, id] : pieces) {
      Append(text.substr(begin, end - begin),
             id == Unigram<float>::kUnknown ? index_->unk_id() : id, first, ids);
    }
  }

 private:
  Unigram<float> unigram_;
};

class CharacterSegmenter : public Segmenter {
 public:
  CharacterSegmenter(const SentencePieceSpec& spec, const PieceIndex* index,
                     const ByteTrie* user_defined)
      : Segmenter(spec, index), user_defined_(user_defined) {}

  void Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    const size_t first = ids->size();
    for (size_t i = 0, length = 0; i < text.size(); i += length) {
      int32_t defined = -1;
      length = SymbolLength(*user_defined_, text, i, &defined);
      const std::string_view symbol = text.substr(i, length);
      Append(symbol, index_->FindOrUnknown(symbol), first, ids);
    }
  }

 private:
  const ByteTrie* user_defined_;
};

class WordSegmenter : public Segmenter {
 public:
  WordSegmenter(const SentencePieceSpec& spec, const PieceIndex* index) : Segmenter(spec, index) {}

  void Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    const size_t first = ids->size();
    for (size_t i = 0, next = 0; i < text.size(); i = next) {
      next = i + AnnouncedUtf8Length(text, i);
      while (next < text.size() && !text.substr(next).starts_with("▁")) {
        next += AnnouncedUtf8Length(text, next);
      }
      const std::string_view word = text.substr(i, next - i);
      Append(word, index_->FindOrUnknown(word), first, ids);
    }
  }
};

std::optional<int32_t> FindIn(const std::unordered_map<std::string_view, int32_t>& ids,
                              std::string_view text) {
  const auto at = ids.find(text);
  return at == ids.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace

PieceIndex::PieceIndex(const std::vector<Piece>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool is_text = IsTextPiece(pieces[i]);
    (is_text ? texts_ : others_).emplace(pieces[i].text, id);
    if (pieces[i].type == Piece::kUnknown) unk_id_ = id;
  }
}

std::optional<int32_t> PieceIndex::Find(std::string_view text) const {
  const auto other = FindIn(others_, text);
  return other ? other : FindText(text);
}

std::optional<int32_t> PieceIndex::FindText(std::string_view text) const {
  return FindIn(texts_, text);
}

size_t SymbolLength(const ByteTrie& user_defined, std::string_view text, size_t at,
                    int32_t* defined) {
  *defined = -1;
  const size_t length = user_defined.LongestPrefix(text.substr(at), defined);
  return length > 0 ? length : AnnouncedUtf8Length(text, at);
}

std::unique_ptr<Segmenter> Segmenter::Make(const SentencePieceSpec& spec, const PieceIndex* index,
                                           const ByteTrie* user_defined) {
  switch (spec.model_type) {
    case SentencePieceSpec::kBpe:
      return std::make_unique<MergeSegmenter>(spec, index, user_defined);
    case SentencePieceSpec::kWord:
      return std::make_unique<WordSegmenter>(spec, index);
    case SentencePieceSpec::kCharacter:
      return std::make_unique<CharacterSegmenter>(spec, index, user_defined);
    default:
      return std::make_unique<UnigramSegmenter>(spec, index);
  }
}

Segmenter::Segmenter(const SentencePieceSpec& spec, const PieceIndex* index)
    : index_(index), byte_fallback_(spec.byte_fallback) {
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    if (spec.pieces[id].type != Piece::kByte) continue;
    if (const auto byte = ByteOfPiece(spec.pieces[id].text)) {
      byte_ids_[*byte] = static_cast<int32_t>(id);
    }
  }
}

void Segmenter::Append(std::string_view piece, int32_t id, size_t first,
                       std::vector<int32_t>* ids) const {
  const bool unknown = id == index_->unk_id();
  if (unknown && byte_fallback_) {
    for (const char c : piece) ids->push_back(byte_ids_[static_cast<uint8_t>(c)]);
  } else if (!unknown || ids->size() == first || ids->back() != id) {
    ids->push_back(id);
  }
}

}  // namespace tessera::data
