// SPDX-License-Identifier: Apache-2.0
// WARC (ISO 28500) and Common Crawl's WET, which is WARC of plain texts.
#ifndef TESSERA_CORPUS_IO_WARC_H_
#define TESSERA_CORPUS_IO_WARC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "corpus/io/document.h"

namespace tessera::corpus {

struct WarcHeader {
  std::string wrong;  // why this is no header; empty: it is one
  size_t size = 0;    // with the blank line at its end
  int64_t content_length = 0;
};

// Of the record that `bytes` begins with.
WarcHeader ParseWarcHeader(std::string_view bytes);

// The document of a whole record: of a `conversion` its text, of a `response` or `resource` the
// page as UTF-8 in the member `html` (a body of text/plain is a text). Why it is none, or empty.
// *passed_over: the record is about others.
std::string DocumentOfWarc(std::string_view record, Document* document, bool* passed_over);

// A document as a record of WET.
void AppendWet(const Document& document, std::string* out);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_IO_WARC_H_
