// SPDX-License-Identifier: Apache-2.0
// Reads large and plain JSON from left to right, without a tree: vocabularies. What it does not
// expect it refuses, without saying why: then json_text.h reads the text, and says what is wrong.
//
//   JsonReader reader(R"({"a": 1})");
//   std::string key;
//   int32_t value = 0;
//   reader.Take('{') && reader.ReadString(&key) && reader.Take(':') && reader.ReadNumber(&value);
#ifndef TESSERA_BASE_JSON_READER_H_
#define TESSERA_BASE_JSON_READER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class JsonReader {
 public:
  // The text must outlive the reader, which does not look whether it is valid UTF-8.
  // `comments`: // and /* */ count as blanks.
  explicit JsonReader(std::string_view text, bool comments = false)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), comments_(comments) {}

  // Each passes over blanks first. False: the text holds something else, which position() is the
  // offset of, and the reader is of no further use, but after Take.
  bool Take(char expected);
  bool TakeWord(std::string_view word);
  // A number as the text spells it; empty where there is none. `whole`: neither a fraction nor an
  // exponent.
  std::string_view TakeNumber(bool* whole);
  bool AtEnd();
  bool ReadNumber(int32_t* value);  // whole, >= 0
  bool ReadString(std::string* text);
  // Passes over a value; only strings and brackets are looked at.
  bool SkipValue();

  // The next character that is no blank; '\0' at the end.
  char Next();
  // How far it has read.
  size_t position() const { return static_cast<size_t>(at_ - begin_); }

 private:
  void SkipBlanks();
  bool SkipComment();
  bool SkipDigits();
  bool ReadEscape(std::string* text);
  bool ReadHex(uint32_t* value);

  const char* const begin_;
  const char* at_;
  const char* const end_;
  const bool comments_;
};

}  // namespace tessera

#endif  // TESSERA_BASE_JSON_READER_H_
