// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/text_input.h"

#include <algorithm>

#include "base/file.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/json_records.h"
#include "data/dataset/record_input.h"
#include "data/dataset/text_pieces.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

// What learns a record that has no text of its own, for the end of a message.
std::string_view TaskOf(const nlohmann::ordered_json& record) {
  if (record.contains("chosen") && record.contains("rejected")) {
    return "; `--task preference` learns such pairs";
  }
  for (const char* key : {"messages", "conversations", "instruction"}) {
    if (record.contains(key)) return "; `--task chat` learns such conversations";
  }
  return "";
}

Status VisitJsonRecords(const std::string& path, const std::string& key,
                        const DocumentVisitor& visit) {
  return ForEachJsonRecord(
      path, [&](const nlohmann::ordered_json& record, const std::string& where) -> Status {
        const auto member = record.find(key);
        const bool found = member != record.end();
        if (!found || !member->is_string()) {
          std::string members;
          for (const auto& [name, value] : record.items()) {
            members += (members.empty() ? "" : ", ") + name;
          }
          return InvalidArgument(where, ": no string \"", key, "\"", found ? ", which is " : "",
                                 found ? member->type_name() : "", " (members: ", members, "); ",
                                 found ? "leave the record out, or name another member" : "name it",
                                 " with --json-key", TaskOf(record));
        }
        const auto& document = member->get_ref<const std::string&>();
        return document.empty() ? OkStatus() : visit(document, where);
      });
}

Status VisitTable(const std::string& path, const std::string& key, const DocumentVisitor& visit) {
  std::vector<std::string> columns = {key};
  // A file of columns says by itself what it has, with types.
  TESSERA_ASSIGN_OR_RETURN(const bool typed, HoldsColumns(path));
  if (!typed) {
    TESSERA_ASSIGN_OR_RETURN(columns, ColumnsOf(path));
  }
  if (std::find(columns.begin(), columns.end(), key) == columns.end()) {
    std::string names;
    for (const std::string& column : columns) names += (names.empty() ? "" : ", ") + column;
    return InvalidArgument(path, ": no column '", key, "' (columns: ", names,
                           "); name it with --json-key");
  }
  return ForEachRecord(path, {key},
                       [&](std::span<const std::string> fields, const std::string& where) {
                         return fields[0].empty() ? OkStatus() : visit(fields[0], where);
                       });
}

}  // namespace

StatusOr<std::vector<std::string>> ListInputFiles(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> named, FilesOfData(input));
    if (named.front() != input) {
      files.insert(files.end(), named.begin(), named.end());
      continue;
    }
    if (!PathExists(input)) return NotFound(input, ": no such file or directory");
    if (IsDirectory(input)) {
      TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> below, FilesBelow(input));
      files.insert(files.end(), below.begin(), below.end());
    } else {
      files.push_back(input);
    }
  }
  if (files.empty()) {
    return InvalidArgument(inputs.empty() ? "input" : inputs[0], ": no text files there");
  }
  return files;
}

bool HasRecords(const std::string& path, TextFormat format) {
  return format == TextFormat::kAuto ? IsTable(path) : format == TextFormat::kJsonLines;
}

Status ForEachDocument(const std::vector<std::string>& files, const TextInputOptions& options,
                       const DocumentVisitor& visit) {
  for (const std::string& path : files) {
    const bool records = HasRecords(path, options.format);
    bool table = records && HasHeader(path) && options.format == TextFormat::kAuto;
    if (records && !table) {
      TESSERA_ASSIGN_OR_RETURN(table, HoldsColumns(path));
    }
    if (table) {
      TESSERA_RETURN_IF_ERROR(VisitTable(path, options.json_key, visit));
      continue;
    }
    if (records) {
      TESSERA_RETURN_IF_ERROR(VisitJsonRecords(path, options.json_key, visit));
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(TextPieces pieces, TextPieces::Open(path));
    TESSERA_ASSIGN_OR_RETURN(const std::string_view text, pieces.Rest());
    if (!text.empty()) TESSERA_RETURN_IF_ERROR(visit(text, path));
  }
  return OkStatus();
}

}  // namespace tessera::data
