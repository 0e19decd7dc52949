// The system's sentencepiece library behind an interface of plain types.
//
// Its headers declare names of Abseil that differ from the distribution's Abseil, so that one
// source file alone (library.cc) includes them. For SentencePieceTokenizer
// (sentence_piece.h) only.
//
//   std::string error;
//   std::unique_ptr<SentencePieceModel> model = SentencePieceModel::Parse(bytes, &error);
//   if (model == nullptr) return InvalidArgument(path, ": ", error);
#ifndef TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_LIBRARY_H_
#define TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

enum class PieceKind : uint8_t { kText, kUnknown, kControl, kByte };

// A loaded model. Immutable; safe from several threads.
class SentencePieceModel {
 public:
  // `bytes` is the content of a .model file. nullptr and a reason where it is none, or where its
  // character map points outside itself.
  static std::unique_ptr<SentencePieceModel> Parse(std::string_view bytes, std::string* error);
  ~SentencePieceModel();

  // Appends the ids of `text`, any bytes.
  void Encode(std::string_view text, std::vector<int32_t>* ids) const;

  // Pieces joined into text as the library does: "▁" are blanks, the first one is dropped, control
  // pieces give nothing, byte pieces give characters; what is no piece stands for itself.
  std::string Decode(const std::vector<std::string>& pieces) const;

  int32_t size() const;
  const std::string& Piece(int32_t id) const;  // 0 <= id < size()
  PieceKind Kind(int32_t id) const;            // 0 <= id < size()
  // The id of a piece written exactly so.
  std::optional<int32_t> Find(std::string_view piece) const;
  int32_t unk_id() const;

 private:
  struct Impl;
  explicit SentencePieceModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The model with its switch "a blank in front of the text" off.
std::string WithoutDummyPrefix(std::string_view model);

// Whether the library may load `model`: a well-formed message whose character map (a double-array
// trie and the texts it points to) stays inside itself, and whose scores are numbers. Returns the
// reason it may not; empty: it may.
std::string FindModelDamage(std::string_view model);

// What a model's message says that the library does not tell. Numbers are those of the message's
// enumerations.
struct SentencePieceSpec {
  struct Piece {
    enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
    std::string text;
    float score = 0;
    int type = kNormal;
  };
  enum ModelType { kUnigram = 1, kBpe = 2 };

  std::vector<Piece> pieces;  // by id
  int model_type = kUnigram;
  std::string character_map;  // a PrecompiledMap; may be empty
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
};

// Of a model without damage.
SentencePieceSpec ReadSentencePieceSpec(std::string_view model);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_SENTENCE_PIECE_LIBRARY_H_
