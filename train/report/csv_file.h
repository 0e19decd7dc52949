// SPDX-License-Identifier: Apache-2.0
// `<out>/metrics.csv`: the rows of metrics as a table (RFC 4180), a column for every name that a
// row had so far. A cell that its row does not have is empty; what is no finite number is `nan`.
//
//   step,loss,lr,val_loss
//   10,3.25,0.001,
//   10,,,3.5
#ifndef TESSERA_TRAIN_REPORT_CSV_FILE_H_
#define TESSERA_TRAIN_REPORT_CSV_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/report/appended_file.h"
#include "train/report/metrics_writer.h"

namespace tessera::train {

class CsvFile : public MetricsWriter {
 public:
  // Begins the file anew.
  static StatusOr<std::unique_ptr<MetricsWriter>> Open(const std::string& folder);
  static Status Remove(const std::string& folder);

  Status Append(const nlohmann::ordered_json& row) override;

 private:
  explicit CsvFile(AppendedFile file) : file_(std::move(file)) {}
  Status AddColumns(const std::vector<std::string>& names);

  AppendedFile file_;
  std::vector<std::string> columns_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_CSV_FILE_H_
