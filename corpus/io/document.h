// SPDX-License-Identifier: Apache-2.0
// A document: a text, a name, and whatever else came with it.
//
//   Document document;
//   const char* wrong = document.Parse(R"({"id": 7, "text": "a", "n": 1.50})");   // nullptr
//   document.set_text("b");
//   document.Set("language", "\"en\"");
//   document.AppendLine(&out);      // {"id": 7, "text": "b", "n": 1.50,"language":"en"}
//
// As JSON it is an object with the member `text`. Members that nobody sets go on byte for byte.
#ifndef TESSERA_CORPUS_IO_DOCUMENT_H_
#define TESSERA_CORPUS_IO_DOCUMENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corpus/io/json_line.h"

namespace tessera::corpus {

class Document {
 public:
  Document() = default;
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  // Takes an object; what is wrong with it, or nullptr. `line` must outlive the document's use,
  // which may be parsed again. `text_key` names the member that is the text; a text that is no
  // string is wrong, one that is missing is empty.
  const char* Parse(std::string_view line, std::string_view text_key = "text");
  // Of a bare text.
  void Assign(std::string_view text);

  // Its place among all lines and records of the inputs, from 1.
  int64_t number = 0;

  bool has_text() const { return has_text_; }
  const std::string& text() const { return text_; }
  void set_text(std::string text);
  void RemoveText();

  // `id`, else `url`, else the number; of an id that is no string, its JSON.
  std::string id() const;
  // What a member that is a string says; empty where there is none.
  std::string Text(std::string_view name) const;
  // The member's JSON; empty where there is none.
  std::string_view Json(std::string_view name) const;
  // What a member says, or one within it: "set", "meta.set". Of one that is no string, its JSON;
  // empty where there is none, or null.
  std::string ValueAt(std::string_view path) const;
  // `url`, or that of `metadata`, where dolma has it; else empty.
  std::string Url() const;

  // Adds or replaces a member by a JSON value.
  void Set(std::string_view name, std::string json);
  void Remove(std::string_view name);

  // Appends the object and a line feed.
  void AppendLine(std::string* out) const;

 private:
  const JsonPiece* Find(std::string_view name) const;

  std::string_view line_;
  std::vector<JsonPiece> members_;
  std::string text_key_ = "text";
  std::string text_;
  bool has_text_ = false;
  bool text_changed_ = false;
  // Members that were set, and, without a value, removed.
  std::vector<std::pair<std::string, std::string>> changes_;
};

}  // namespace tessera::corpus

#endif  // TESSERA_CORPUS_IO_DOCUMENT_H_
