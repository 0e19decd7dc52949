// SPDX-License-Identifier: Apache-2.0
// A file that a run adds rows to while it goes: a JSON object per line, numbers with all their
// digits, each with the `step` it tells of.
//
//   TESSERA_ASSIGN_OR_RETURN(RowFile file, RowFile::Open("out/epochs.jsonl", resumed_step));
//   TESSERA_RETURN_IF_ERROR(file.Append({{"step", 10}, {"loss", 3.25}}));
#ifndef TESSERA_TRAIN_REPORT_ROW_FILE_H_
#define TESSERA_TRAIN_REPORT_ROW_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/report/appended_file.h"

namespace tessera::train {

class RowFile {
 public:
  using Row = nlohmann::ordered_json;

  // Keeps the rows of an existing file up to `last_step` (a line that a killed run left unfinished
  // is dropped with the rest) and appends behind them. `kept` gets them. `again`: rows of
  // `last_step` itself with this key are dropped, too, since the run writes them again; nullptr:
  // there are none.
  static StatusOr<RowFile> Open(const std::string& path, int64_t last_step,
                                std::vector<Row>* kept = nullptr, const char* again = nullptr);

  // A row reaches the file at once.
  Status Append(const Row& row);

 private:
  explicit RowFile(AppendedFile file) : file_(std::move(file)) {}

  AppendedFile file_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_ROW_FILE_H_
