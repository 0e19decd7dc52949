// SPDX-License-Identifier: Apache-2.0
// The message (of Protocol Buffers) that a SentencePiece .model file is.
//
//   const std::string damage = FindModelDamage(bytes);
//   if (!damage.empty()) return InvalidArgument(path, ": ", damage);
//   const SentencePieceSpec spec = ReadSentencePieceSpec(bytes);
#ifndef TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MODEL_MESSAGE_H_
#define TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MODEL_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

// What stands for a blank in pieces.
inline constexpr std::string_view kSentencePieceBlank = "▁";

// What a model's message says. Numbers are those of the message's enumerations, absent fields have
// its defaults.
struct SentencePieceSpec {
  struct Piece {
    enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
    std::string text;
    float score = 0;
    int type = kNormal;
  };
  enum ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kCharacter = 4 };
  struct Normalizer {
    std::string character_map;  // a PrecompiledMap; may be empty
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
  };

  std::vector<Piece> pieces;  // by id
  int model_type = kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  std::string unk_surface = " \u2047 ";  // what the unknown piece is decoded to
  Normalizer normalizer;
  Normalizer denormalizer;
};

// Whether a piece stands for its own text: others stand for something else.
inline bool IsTextPiece(const SentencePieceSpec::Piece& piece) {
  using Piece = SentencePieceSpec::Piece;
  return piece.type == Piece::kNormal || piece.type == Piece::kUserDefined ||
         piece.type == Piece::kUnused;
}

// The byte that "<0x00>" ... "<0xFF>" are written for.
std::optional<uint8_t> ByteOfPiece(std::string_view text);

// Why `model` is none: it is no well-formed message, a character map (a double-array trie and the
// texts it points to) does not stay inside itself, scores are no numbers, or pieces do not fit
// together. Empty: it is one.
std::string FindModelDamage(std::string_view model);

// Of a model without damage.
SentencePieceSpec ReadSentencePieceSpec(std::string_view model);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_MODEL_MESSAGE_H_
