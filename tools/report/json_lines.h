// SPDX-License-Identifier: Apache-2.0
// Files of one JSON object per line that another process may be writing.
//
//   TESSERA_RETURN_IF_ERROR(ForEachRow("runs/book/metrics.jsonl", [&](const Row& row) {
//     ...row.step, row.json.at("loss")...
//   }));
//
// A last line without its line feed is still being written, or its writer was killed: it counts
// where it is whole already, and is passed over where it is not.
#ifndef TESSERA_TOOLS_REPORT_JSON_LINES_H_
#define TESSERA_TOOLS_REPORT_JSON_LINES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::report {

struct Row {
  int64_t step = 0;
  const nlohmann::ordered_json& json;  // an object
};

// Rows without a step have no place in a report and are passed over, as in
// train/report/event_file.h. InvalidArgument names the file and the line of what is no JSON object,
// or has a step that is no whole number from 0 to 2^53.
Status ForEachRow(const std::string& path, const std::function<void(const Row& row)>& visit);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_JSON_LINES_H_
