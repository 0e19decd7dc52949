// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/sentence_piece/model_message.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/status.h"
#include "data/tokenizer/precompiled_map.h"

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

// A number that the enumeration, 1 to `last`, does not have is no value.
void ReadEnum(const Field& field, int last, int* value) {
  const auto number = static_cast<int32_t>(field.value);
  if (number >= 1 && number <= last) *value = number;
}

SentencePieceSpec::Piece ReadPiece(std::string_view message) {
  SentencePieceSpec::Piece piece;
  FieldReader fields(message);
  for (Field field; fields.Next(&field);) {
    if (field.number == 1 && field.type == kBytes) piece.text = field.bytes;
    if (field.number == 2 && field.type == kFloat) piece.score = FloatOf(field);
    if (field.number == 3 && field.type == kVarint) {
      ReadEnum(field, SentencePieceSpec::Piece::kByte, &piece.type);
    }
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

std::string CheckTrainer(std::string_view spec) {
  FieldReader fields(spec);
  for (Field field; fields.Next(&field);) continue;
  return fields.damaged() ? "how it was trained is cut off" : "";
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

void ReadNormalizer(std::string_view message, SentencePieceSpec::Normalizer* spec) {
  FieldReader fields(message);
  for (Field field; fields.Next(&field);) {
    const bool on = field.value != 0;
    if (field.number == 2 && field.type == kBytes) spec->character_map = field.bytes;
    if (field.type != kVarint) continue;
    if (field.number == 3) spec->add_dummy_prefix = on;
    if (field.number == 4) spec->remove_extra_whitespaces = on;
    if (field.number == 5) spec->escape_whitespaces = on;
  }
}

void ReadTrainer(std::string_view message, SentencePieceSpec* spec) {
  FieldReader fields(message);
  for (Field field; fields.Next(&field);) {
    if (field.number == 44 && field.type == kBytes) {
      spec->unk_surface = field.bytes.substr(0, field.bytes.find('\0'));
    }
    if (field.type != kVarint) continue;
    if (field.number == 3) ReadEnum(field, SentencePieceSpec::kCharacter, &spec->model_type);
    if (field.number == 24) spec->treat_whitespace_as_suffix = field.value != 0;
    if (field.number == 35) spec->byte_fallback = field.value != 0;
  }
}

// What is wrong with one message by itself.
std::string CheckMessages(std::string_view model) {
  FieldReader fields(model);
  for (Field field; fields.Next(&field);) {
    if (field.type != kBytes) continue;
    std::string damage;
    if (field.number == kPieces) damage = CheckPiece(field.bytes);
    if (field.number == kNormalizer || field.number == kDenormalizer) {
      damage = CheckNormalizer(field.bytes);
    }
    if (field.number == kTrainer) damage = CheckTrainer(field.bytes);
    if (!damage.empty()) return damage;
  }
  return fields.damaged() ? "the file is cut off or of another kind" : "";
}

// Whether the pieces fit together.
std::string CheckPieces(const SentencePieceSpec& spec) {
  using Piece = SentencePieceSpec::Piece;
  std::unordered_set<std::string_view> texts;
  std::unordered_set<std::string_view> others;
  std::array<bool, 256> has_byte{};
  int num_unknown = 0;
  for (const Piece& piece : spec.pieces) {
    if (piece.text.empty()) return "a piece is empty";
    if (piece.text.find('\0') != std::string::npos) return "a piece has a zero byte";
    if (!(IsTextPiece(piece) ? texts : others).insert(piece.text).second) {
      return Concat("piece ", piece.text, " is defined twice");
    }
    if (piece.type == Piece::kUnknown && ++num_unknown > 1) return "two pieces are the unknown one";
    if (piece.type != Piece::kByte) continue;
    const auto byte = ByteOfPiece(piece.text);
    if (!byte || !spec.byte_fallback) return Concat("piece ", piece.text, " is no byte");
    has_byte[*byte] = true;
  }
  if (num_unknown == 0) return "no piece is the unknown one";
  if (spec.byte_fallback &&
      !std::all_of(has_byte.begin(), has_byte.end(), [](bool b) { return b; })) {
    return "pieces for some bytes are missing";
  }
  return texts.empty() ? "there are no pieces of text" : "";
}

}  // namespace

std::optional<uint8_t> ByteOfPiece(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(text[3]);
  const size_t low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<uint8_t>(16 * high + low);
}

std::string FindModelDamage(std::string_view model) {
  if (model.empty()) return "the file is empty";
  std::string damage = CheckMessages(model);
  if (damage.empty()) damage = CheckPieces(ReadSentencePieceSpec(model));
  return damage.empty() ? "" : "not a SentencePiece model: " + damage;
}

SentencePieceSpec ReadSentencePieceSpec(std::string_view model) {
  SentencePieceSpec spec;
  FieldReader fields(model);
  for (Field part; fields.Next(&part);) {
    if (part.type != kBytes) continue;
    if (part.number == kPieces) spec.pieces.push_back(ReadPiece(part.bytes));
    if (part.number == kTrainer) ReadTrainer(part.bytes, &spec);
    if (part.number == kNormalizer) ReadNormalizer(part.bytes, &spec.normalizer);
    if (part.number == kDenormalizer) ReadNormalizer(part.bytes, &spec.denormalizer);
  }
  return spec;
}

}  // namespace tessera::data
