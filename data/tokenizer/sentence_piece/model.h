// SPDX-License-Identifier: Apache-2.0
// A SentencePiece `.model` file: texts to the ids of its pieces, and pieces to text, as the library
// of that name does both (version 0.1.97), to the bit of its scores.
//
//   std::string error;
//   std::unique_ptr<SentencePieceModel> model = SentencePieceModel::Parse(bytes, &error);
//   if (model == nullptr) return InvalidArgument(path, ": ", error);
//   std::vector<int32_t> ids;
//   model->Encode("hello world", &ids);
//
// A text is normalised (text_normalizer.h), and what comes of it cut into pieces (segmenter.h):
// those of a unigram or a BPE model, characters or words. Characters beside each other that no
// piece has are one unknown piece, or the pieces of their bytes.
#ifndef TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MODEL_H_
#define TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/sentence_piece/model_message.h"
#include "data/tokenizer/sentence_piece/segmenter.h"
#include "data/tokenizer/sentence_piece/text_normalizer.h"

namespace tessera::data {

enum class PieceKind : uint8_t { kText, kUnknown, kControl, kByte };

// Immutable; safe from several threads.
class SentencePieceModel {
 public:
  // `bytes` is the content of a .model file. nullptr and a reason where it is none, or where its
  // pieces do not fit together.
  static std::unique_ptr<SentencePieceModel> Parse(std::string_view bytes, std::string* error);

  // Appends the ids of `text`, any bytes. A text in which characters alone are a control piece has
  // none. `dummy_prefix` false: no blank is put in front, whatever the model says.
  void Encode(std::string_view text, std::vector<int32_t>* ids, bool dummy_prefix = true) const;

  // Pieces joined into text: "▁" are blanks, the first one is dropped, control pieces give nothing,
  // byte pieces give characters; what is no piece stands for itself.
  std::string Decode(const std::vector<std::string>& pieces) const;

  int32_t size() const { return static_cast<int32_t>(spec_.pieces.size()); }
  const std::string& Piece(int32_t id) const { return PieceAt(id).text; }  // 0 <= id < size()
  PieceKind Kind(int32_t id) const;                                        // 0 <= id < size()
  // The id of a piece written exactly so.
  std::optional<int32_t> Find(std::string_view piece) const { return vocab_.Find(piece); }
  int32_t unk_id() const { return vocab_.unk_id(); }
  // Whether Decode takes a blank away in front.
  bool drops_first_blank() const {
    return spec_.normalizer.add_dummy_prefix || spec_.normalizer.remove_extra_whitespaces;
  }

 private:
  SentencePieceModel() = default;
  const SentencePieceSpec::Piece& PieceAt(int32_t id) const {
    return spec_.pieces[static_cast<size_t>(id)];
  }
  std::string DecodePiece(const std::string& piece, int32_t id, bool at_start, bool* dropped) const;

  SentencePieceSpec spec_;
  PieceIndex vocab_;       // of spec_.pieces
  ByteTrie user_defined_;  // found before anything else
  std::optional<TextNormalizer> normalizer_;
  std::optional<TextNormalizer> denormalizer_;
  std::unique_ptr<Segmenter> segmenter_;
};

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MODEL_H_
