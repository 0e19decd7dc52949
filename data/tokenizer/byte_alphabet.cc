// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace tessera::data {
namespace {

struct ByteAlphabet {
  std::array<std::string, 256> pieces;
  std::array<int, 0x144> bytes;  // by code point, -1 where none

  ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      const char32_t code_point = printable ? static_cast<char32_t>(b) : next++;
      AppendUtf8(code_point, &pieces[b]);
      bytes[code_point] = b;
    }
  }
};

const ByteAlphabet& Alphabet() {
  static const auto* const alphabet = new ByteAlphabet();
  return *alphabet;
}

}  // namespace

const std::string& BytePiece(uint8_t byte) { return Alphabet().pieces[byte]; }

std::string PieceOfBytes(std::string_view bytes) {
  std::string piece;
  for (const char c : bytes) piece += BytePiece(static_cast<uint8_t>(c));
  return piece;
}

std::optional<std::string> BytesOfPiece(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size();) {
    if (piece[i] > 0x20 && piece[i] < 0x7F) {  // itself
      bytes.push_back(piece[i++]);
      continue;
    }
    const Utf8Char c = DecodeUtf8(piece, i);
    if (!c.valid || c.code_point >= Alphabet().bytes.size()) return std::nullopt;
    const int byte = Alphabet().bytes[c.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    i += c.length;
  }
  return bytes;
}

}  // namespace tessera::data
