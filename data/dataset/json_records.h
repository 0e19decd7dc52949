// SPDX-License-Identifier: Apache-2.0
// The objects of a file of JSON lines, of one JSON array, or the rows of a Parquet or Arrow file
// (data/columns/column_json.h), with their keys in order.
//
//   TESSERA_RETURN_IF_ERROR(ForEachJsonRecord(
//       "chats.jsonl", [&](const nlohmann::ordered_json& record, const std::string& where) ->
//       Status {
//         return Take(record["messages"]);
//       }));
//
// A byte-order mark is dropped, blank lines are skipped. What begins with '[' is one array, however
// many lines it has. Text may be compressed (text_pieces.h). The file's bytes say what it is.
#ifndef TESSERA_DATA_DATASET_JSON_RECORDS_H_
#define TESSERA_DATA_DATASET_JSON_RECORDS_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

// `where` is path:line, or path[index] of an array or a row.
using JsonRecordVisitor =
    std::function<Status(const nlohmann::ordered_json& record, const std::string& where)>;

// InvalidArgument for what is no JSON, or no object, with its place. A status of `visit` ends the
// reading and is returned.
Status ForEachJsonRecord(const std::string& path, const JsonRecordVisitor& visit);

}  // namespace tessera::data

#endif  // TESSERA_DATA_DATASET_JSON_RECORDS_H_
