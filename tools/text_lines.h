// SPDX-License-Identifier: Apache-2.0
// The texts of a file, one after the other: the lines of plain text, empty ones too, or a column of
// records (data/dataset/record_input.h). Lines end as on any system, with "\n" or "\r\n".
//
//   TESSERA_ASSIGN_OR_RETURN(const TextLines texts, TextLines::Read("texts.txt", "text"));
#ifndef TESSERA_TOOLS_TEXT_LINES_H_
#define TESSERA_TOOLS_TEXT_LINES_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera::tools {

// What commands say of the file's flag, and of the column's.
inline constexpr char kTextLinesHelp[] =
    "a text on each line; of a .jsonl, .json, .csv or .tsv file one in each record; -: standard "
    "input";
inline constexpr char kTextKeyHelp[] = "member or column of records that holds the text";

// Shows the lines of plain text; `path` "-" is standard input. InvalidArgument for what is no text.
Status ForEachLine(const std::string& path, const std::function<Status(std::string_view)>& visit);

struct TextLines {
  std::vector<std::string> texts;
  std::vector<std::string> places;  // of records: where each stands

  // `path` "-" is standard input, of plain text. InvalidArgument for what is no text.
  static StatusOr<TextLines> Read(const std::string& path, const std::string& key);

  // "in.txt:3", for messages.
  std::string PlaceOf(const std::string& path, size_t i) const;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TEXT_LINES_H_
