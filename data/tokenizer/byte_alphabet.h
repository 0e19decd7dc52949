// SPDX-License-Identifier: Apache-2.0
// How byte-level vocabularies write bytes: one character for each. Printable bytes of Latin-1 are
// themselves, the others are characters from U+0100 on, so that a blank is "Ġ" (openai/gpt-2,
// src/encoder.py, bytes_to_unicode).
//
//   PieceOfBytes(" caf\xC3\xA9");   // "ĠcafÃ©"
//   BytesOfPiece("Ġhello");         // " hello"
#ifndef TESSERA_DATA_TOKENIZER_BYTE_ALPHABET_H_
#define TESSERA_DATA_TOKENIZER_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::data {

// The character of one byte, in UTF-8.
const std::string& BytePiece(uint8_t byte);

// The characters of `bytes`.
std::string PieceOfBytes(std::string_view bytes);

// The bytes that a piece stands for; nullopt if one of its characters stands for no byte.
std::optional<std::string> BytesOfPiece(std::string_view piece);

}  // namespace tessera::data

#endif  // TESSERA_DATA_TOKENIZER_BYTE_ALPHABET_H_
