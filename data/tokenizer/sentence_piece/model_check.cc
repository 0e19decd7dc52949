// What is looked at before the library gets a model from outside: it trusts the character map.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "data/tokenizer/precompiled_map.h"
#include "data/tokenizer/sentence_piece/library.h"

namespace tessera::data {
namespace {

// Reads the fields of a protocol buffer message one after the other.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  // Takes the next field: its number, its wire type, and what it holds (for a length-delimited one
  // its bytes, for a 32-bit one those four). False at the end and where the message is damaged.
  bool Next(uint32_t* number, uint32_t* type, std::string_view* value) {
    if (bytes_.empty()) return false;
    uint64_t key = 0;
    if (!Varint(&key)) return Fail();
    *number = static_cast<uint32_t>(key >> 3);
    *type = static_cast<uint32_t>(key & 7);
    uint64_t length = 0;
    switch (*type) {
      case 0: {
        uint64_t ignored = 0;
        if (!Varint(&ignored)) return Fail();
        break;
      }
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
    if (*number == 0 || length > bytes_.size()) return Fail();
    *value = bytes_.substr(0, static_cast<size_t>(length));
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

constexpr uint32_t kBytes = 2;
constexpr uint32_t kFloat = 5;
constexpr uint32_t kPieces = 1;
constexpr uint32_t kNormalizer = 3;
constexpr uint32_t kDenormalizer = 5;

std::string CheckPiece(std::string_view piece) {
  FieldReader fields(piece);
  uint32_t number = 0;
  uint32_t type = 0;
  std::string_view value;
  while (fields.Next(&number, &type, &value)) {
    if (number != 2 || type != kFloat) continue;
    float score = 0;
    std::memcpy(&score, value.data(), sizeof(score));
    if (!std::isfinite(score)) return "the score of a piece is no number";
  }
  return fields.damaged() ? "a piece is cut off" : "";
}

std::string CheckNormalizer(std::string_view spec) {
  FieldReader fields(spec);
  uint32_t number = 0;
  uint32_t type = 0;
  std::string_view value;
  while (fields.Next(&number, &type, &value)) {
    if (number != 2 || type != kBytes || value.empty()) continue;
    PrecompiledMap map;
    if (!map.Parse(value)) return "its character map is damaged";
  }
  return fields.damaged() ? "its normalisation is cut off" : "";
}

}  // namespace

std::string FindModelDamage(std::string_view model) {
  if (model.empty()) return "the file is empty";
  FieldReader fields(model);
  uint32_t number = 0;
  uint32_t type = 0;
  std::string_view value;
  bool has_pieces = false;
  while (fields.Next(&number, &type, &value)) {
    if (type != kBytes) continue;
    std::string damage;
    if (number == kPieces) {
      has_pieces = true;
      damage = CheckPiece(value);
    } else if (number == kNormalizer || number == kDenormalizer) {
      damage = CheckNormalizer(value);
    }
    if (!damage.empty()) return "not a SentencePiece model: " + damage;
  }
  if (fields.damaged()) return "not a SentencePiece model: the file is cut off or of another kind";
  if (!has_pieces) return "not a SentencePiece model: there are no pieces";
  return "";
}

}  // namespace tessera::data
