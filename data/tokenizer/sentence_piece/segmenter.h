// SPDX-License-Identifier: Apache-2.0
// Cuts a normalised text into the pieces of a SentencePiece model.
//
//   const PieceIndex index(spec.pieces);
//   const auto segmenter = Segmenter::Make(spec, index, &user_defined);
//   segmenter->Encode("▁hello▁world", &ids);
//
// Immutable; safe from several threads.
#ifndef TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_SEGMENTER_H_
#define TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_SEGMENTER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/sentence_piece/model_message.h"

namespace tessera::data {

// The ids of a model's pieces. A text may be two pieces: one that text is made of (normal,
// user-defined, unused), and one that stands for something else (unknown, control, byte).
class PieceIndex {
 public:
  PieceIndex() = default;
  // The pieces outlive the index and do not move.
  explicit PieceIndex(const std::vector<SentencePieceSpec::Piece>& pieces);

  // Of two, the one that stands for something else.
  std::optional<int32_t> Find(std::string_view text) const;
  int32_t FindOrUnknown(std::string_view text) const { return Find(text).value_or(unk_id_); }
  // Only of the ones that text is made of.
  std::optional<int32_t> FindText(std::string_view text) const;
  int32_t unk_id() const { return unk_id_; }

 private:
  std::unordered_map<std::string_view, int32_t> texts_;
  std::unordered_map<std::string_view, int32_t> others_;
  int32_t unk_id_ = 0;
};

class Segmenter {
 public:
  virtual ~Segmenter() = default;
  // By spec.model_type. All three outlive the segmenter.
  static std::unique_ptr<Segmenter> Make(const SentencePieceSpec& spec, const PieceIndex* index,
                                         const ByteTrie* user_defined);

  // Appends the ids of a normalised text, any bytes.
  virtual void Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;

 protected:
  Segmenter(const SentencePieceSpec& spec, const PieceIndex* index);
  // Appends the id of a piece of text to what begins at (*ids)[first]: an unknown one as its bytes
  // where the model has those, else not behind another unknown one.
  void Append(std::string_view piece, int32_t id, size_t first, std::vector<int32_t>* ids) const;

  const PieceIndex* index_;

 private:
  bool byte_fallback_;
  std::array<int32_t, 256> byte_ids_{};
};

// The length of the user-defined piece at text[at] (`defined`: its id), else that of the character
// there (`defined`: -1).
size_t SymbolLength(const ByteTrie& user_defined, std::string_view text, size_t at,
                    int32_t* defined);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_SEGMENTER_H_
