// SPDX-License-Identifier: Apache-2.0
// A row of a column as JSON.
//
//   std::string line;
//   AppendJson(batch.rows, row, &line);     // {"id": 7, "messages": [{"role": "user", ...}]}
//   const nlohmann::ordered_json record = JsonOf(batch.rows, row);
//
// | kind | JSON |
// |---|---|
// | integers, truth values, null | as such; durations are the number of their units |
// | floats | the shortest decimal that is this number in the column's own type, with a point or an
//   exponent; NaN, Infinity, -Infinity as Python's json module writes them and base/json_text.h
//   reads them |
// | string, uuid | string |
// | binary, fixed-size binary | string in base64 |
// | decimal | string with all digits of its scale: "-12.50" |
// | date, time, timestamp | string of ISO 8601: "2024-02-29", "23:59:59.125",
//   "2024-02-29T23:59:59.000001"; a fraction of zero is left out, others have the unit's digits.
//   Timestamps of a zone are given in UTC, with "Z" |
// | list | array |
// | struct | object, with members in order; a member's name given twice occurs twice in the text |
// | map | array of [key, value] |
#ifndef TESSERA_DATA_COLUMNS_COLUMN_JSON_H_
#define TESSERA_DATA_COLUMNS_COLUMN_JSON_H_

#include <cstdint>
#include <string>

#include "data/columns/column.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::data {

// On one line. `row` is in [0, column.length).
void AppendJson(const Column& column, int64_t row, std::string* out);

nlohmann::ordered_json JsonOf(const Column& column, int64_t row);

}  // namespace tessera::data

#endif  // TESSERA_DATA_COLUMNS_COLUMN_JSON_H_
