// SPDX-License-Identifier: Apache-2.0
// The characters of web pages.
#ifndef TESSERA_CORPUS_IO_CHARSET_H_
#define TESSERA_CORPUS_IO_CHARSET_H_

#include <string>
#include <string_view>

namespace tessera::corpus {

// A page as UTF-8. What counts, in this order: a byte-order mark; that all of it is UTF-8; the
// charset that came with it (`declared`, may be empty), or that a <meta> of its first 4096 bytes
// names; else windows-1252, as browsers do. U+FFFD stands for bytes that the charset does not know.
std::string Utf8OfPage(std::string_view bytes, std::string_view declared);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_IO_CHARSET_H_
