// SPDX-License-Identifier: Apache-2.0
// Bytes as printable text (RFC 4648, with padding): the character maps of tokenizer.json.
//
//   EncodeBase64("a")       // "YQ=="
//   DecodeBase64("YQ==")    // "a"; nullopt where the text is none
#ifndef TESSERA_BASE_BASE64_H_
#define TESSERA_BASE_BASE64_H_

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

std::string EncodeBase64(std::string_view bytes);
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace tessera

#endif  // TESSERA_BASE_BASE64_H_
