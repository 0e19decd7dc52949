// Reads the message that a model file is: to look at one from outside before the library, which
// trusts the character map, gets it, and for what the library does not tell.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "data/tokenizer/precompiled_map.h"
#include "data/tokenizer/sentence_piece/library.h"

namespace tessera::data {
namespace {

struct Field {
  uint32_t number = 0;
  uint32_t type = 0;       // of the wire
  std::string_view bytes;  // of a length-delimited or fixed one
  uint64_t value = 0;      // of a variable one
};

// Reads the fields of a protocol buffer message one after the other.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  // Takes the next field. False at the end and where the message is damaged.
  bool Next(Field* field) {
    if (bytes_.empty()) return false;
    uint64_t key = 0;
    if (!Varint(&key)) return Fail();
    field->number = static_cast<uint32_t>(key >> 3);
    field->type = static_cast<uint32_t>(key & 7);
    uint64_t length = 0;
    switch (field->type) {
      case 0:
        if (!Varint(&field->value)) return Fail();
        break;
      case 1:
        length = 8;
        break;
      case 2:
        if (!Varint(&length)) return Fail();
        break;
      case 5:
        length = 4;
        break;
      default:
        return Fail();
    }
    if (field->number == 0 || length > bytes_.size()) return Fail();
    field->bytes = bytes_.substr(0, static_cast<size_t>(length));
    bytes_.remove_prefix(static_cast<size_t>(length));
    return true;
  }
  bool damaged() const { return damaged_; }

 private:
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return false;
      const auto byte = static_cast<uint8_t>(bytes_[0]);
      bytes_.remove_prefix(1);
      *value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Fail() {
    damaged_ = true;
    return false;
  }

  std::string_view bytes_;
  bool damaged_ = false;
};

constexpr uint32_t kVarint = 0;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFloat = 5;
constexpr uint32_t kPieces = 1;
constexpr uint32_t kTrainer = 2;
constexpr uint32_t kNormalizer = 3;
constexpr uint32_t kDenormalizer = 5;

float FloatOf(const Field& field) {
  float value = 0;
  std::memcpy(&value, field.bytes.data(), sizeof(value));
  return value;
}

SentencePieceSpec::Piece ReadPiece(std::string_view message) {
  SentencePieceSpec::Piece piece;
  FieldReader fields(message);
  for (Field field; fields.Next(&field);) {
    if (field.number == 1 && field.type == kBytes) piece.text = field.bytes;
    if (field.number == 2 && field.type == kFloat) piece.score = FloatOf(field);
    if (field.number == 3 && field.type == kVarint) piece.type = static_cast<int>(field.value);
  }
  return piece;
}

std::string CheckPiece(std::string_view piece) {
  FieldReader fields(piece);
  for (Field field; fields.Next(&field);) {
    if (field.number != 2 || field.type != kFloat) continue;
    if (!std::isfinite(FloatOf(field))) return "the score of a piece is no number";
  }
  return fields.damaged() ? "a piece is cut off" : "";
}

std::string CheckNormalizer(std::string_view spec) {
  FieldReader fields(spec);
  for (Field field; fields.Next(&field);) {
    if (field.number != 2 || field.type != kBytes || field.bytes.empty()) continue;
    PrecompiledMap map;
    if (!map.Parse(field.bytes)) return "its character map is damaged";
  }
  return fields.damaged() ? "its normalisation is cut off" : "";
}

}  // namespace

std::string FindModelDamage(std::string_view model) {
  if (model.empty()) return "the file is empty";
  FieldReader fields(model);
  bool has_pieces = false;
  for (Field field; fields.Next(&field);) {
    if (field.type != kBytes) continue;
    std::string damage;
    if (field.number == kPieces) {
      has_pieces = true;
      damage = CheckPiece(field.bytes);
    } else if (field.number == kNormalizer || field.number == kDenormalizer) {
      damage = CheckNormalizer(field.bytes);
    }
    if (!damage.empty()) return "not a SentencePiece model: " + damage;
  }
  if (fields.damaged()) return "not a SentencePiece model: the file is cut off or of another kind";
  if (!has_pieces) return "not a SentencePiece model: there are no pieces";
  return "";
}

SentencePieceSpec ReadSentencePieceSpec(std::string_view model) {
  SentencePieceSpec spec;
  FieldReader fields(model);
  for (Field part; fields.Next(&part);) {
    if (part.type != kBytes) continue;
    if (part.number == kPieces) spec.pieces.push_back(ReadPiece(part.bytes));
    if (part.number != kTrainer && part.number != kNormalizer) continue;
    FieldReader members(part.bytes);
    for (Field field; members.Next(&field);) {
      const bool on = field.value != 0;
      if (part.number == kNormalizer && field.type == kBytes) {
        if (field.number == 2) spec.character_map = field.bytes;
      } else if (field.type != kVarint) {
        continue;
      } else if (part.number == kNormalizer) {
        if (field.number == 3) spec.add_dummy_prefix = on;
        if (field.number == 4) spec.remove_extra_whitespaces = on;
        if (field.number == 5) spec.escape_whitespaces = on;
      } else {
        if (field.number == 3) spec.model_type = static_cast<int>(field.value);
        if (field.number == 24) spec.treat_whitespace_as_suffix = on;
      }
    }
  }
  return spec;
}

}  // namespace tessera::data
