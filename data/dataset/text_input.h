// SPDX-License-Identifier: Apache-2.0
// Documents of text from files: plain text (a file is a document) and JSON lines (a line is one).
//
//   TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> files, ListInputFiles({"corpus/"}));
//   TESSERA_RETURN_IF_ERROR(ForEachDocument(
//       files, {}, [&](std::string_view text, const std::string& where) -> Status { ... }));
//
// Text must be UTF-8; a status names the file and the byte offset of what is not. Documents without
// a byte are left out.
#ifndef TESSERA_DATA_DATASET_TEXT_INPUT_H_
#define TESSERA_DATA_DATASET_TEXT_INPUT_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace tessera::data {

enum class TextFormat {
  kAuto,       // JSON lines where the name ends in .jsonl or .ndjson, else plain text
  kPlain,      //
  kJsonLines,  // one JSON object per line; blank lines are skipped
};

// How a text file is read.
struct TextInputOptions {
  TextFormat format = TextFormat::kAuto;
  std::string json_key = "text";  // the member of each object that holds the text, a string
};

// The files that `inputs` name: a file stands for itself, a directory for all regular files below
// it, sorted by path, without names that begin with a dot and without following links to
// directories. NotFound for a path that does not exist, InvalidArgument if there is no file at all.
StatusOr<std::vector<std::string>> ListInputFiles(const std::vector<std::string>& inputs);

// Called with a document's text, which is valid during the call, and with where it stands: the
// path, or path:line. A status ends the reading and is returned.
using DocumentVisitor = std::function<Status(std::string_view text, const std::string& where)>;

// Visits the documents of `files` in order. Failures: a file that cannot be read, invalid UTF-8, a
// line that is not a JSON object or lacks the key.
Status ForEachDocument(const std::vector<std::string>& files, const TextInputOptions& options,
                       const DocumentVisitor& visit);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TEXT_INPUT_H_
