// SPDX-License-Identifier: Apache-2.0
// Documents of text from files: plain text (a file is a document), and records (a record is one):
// JSON lines, one JSON array, and tables with a header line (data/dataset/record_input.h).
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

#include "base/status.h"

namespace tessera::data {

enum class TextFormat {
  kAuto,       // records where the name is that of a table (IsTable), else plain text
  kPlain,      //
  kJsonLines,  // JSON records; blank lines are skipped
};

// How a text file is read.
struct TextInputOptions {
  TextFormat format = TextFormat::kAuto;
  // The member of each object, or the column of a table, that holds the text.
  std::string json_key = "text";
};

// The files that `inputs` name: a file stands for itself, a directory for all regular files below
// it, sorted by path, without names that begin with a dot and without following links to
// directories, and a split of a data-set folder for its files (data_folder.h). NotFound for a path
// that does not exist, InvalidArgument if there is no file at all.
StatusOr<std::vector<std::string>> ListInputFiles(const std::vector<std::string>& inputs);

// Whether a file of this name is read as records.
bool HasRecords(const std::string& path, TextFormat format);

// Called with a document's text, which is valid during the call, and with where it stands: the
// path, or path:line. A status ends the reading and is returned.
using DocumentVisitor = std::function<Status(std::string_view text, const std::string& where)>;

// Visits the documents of `files` in order. Failures: a file that cannot be read or is no text, a
// record that is not a JSON object or lacks a string under the key.
Status ForEachDocument(const std::vector<std::string>& files, const TextInputOptions& options,
                       const DocumentVisitor& visit);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_TEXT_INPUT_H_
