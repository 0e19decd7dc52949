// SPDX-License-Identifier: Apache-2.0
// A line of JSON as pieces of its own text: what nobody changes continues byte for byte.
//
//   std::vector<JsonPiece> members;
//   const char* wrong = ScanJsonObject(R"({"text": "a\n", "n": 1.50})", &members);   // nullptr
//   members[1].value                                                                  // 1.50
//
// The scanner takes what RFC 8259 says and nothing else, down to kMaxJsonDepth. It does not
// look whether strings are UTF-8.
#ifndef TESSERA_CORPUS_IO_JSON_LINE_H_
#define TESSERA_CORPUS_IO_JSON_LINE_H_

#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

struct JsonPiece {
  std::string_view name;   // between its quotes, as it is spelt
  std::string_view value;  // a string's with its quotes
};

// The members of an object in order, pointing into `line`. What is wrong with the line, or nullptr.
const char* ScanJsonObject(std::string_view line, std::vector<JsonPiece>* members);

// Appends what the characters between a string's quotes say. Halves of surrogate pairs become
// U+FFFD. `quoted` is a value that ScanJsonObject gave, quotes included.
void AppendJsonText(std::string_view quoted, std::string* text);

// Appends `text`, which is UTF-8, as a JSON string.
void AppendJsonString(std::string_view text, std::string* json);

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_IO_JSON_LINE_H_
