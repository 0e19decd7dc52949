// SPDX-License-Identifier: Apache-2.0
// `<out>/tensorboard/events.out.tfevents.<time>.<host>.<process>`: the rows of metrics as
// TensorBoard reads them (`tensorboard --logdir <out>`), an event for each, with a float32 scalar
// for each number.
//
// The tags are `train/<name>`, and `eval/<name>` for `val_<name>`: `loss` is `train/loss`,
// `val_loss` is `eval/loss`. What is no finite number is NaN; what is no number has no tag. An
// event's time is when it was written: rows that a resumed run takes over have the time of its
// start.
//
// The file is a sequence of records: a 64-bit length, its checksum, that many bytes (an `Event` of
// TensorFlow's event.proto), their checksum; all little-endian.
#ifndef TESSERA_TRAIN_REPORT_EVENT_FILE_H_
#define TESSERA_TRAIN_REPORT_EVENT_FILE_H_

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "train/report/appended_file.h"
#include "train/report/metrics_writer.h"

namespace tessera::train {

class EventFile : public MetricsWriter {
 public:
  // Begins a file, in the place of those of the same folder. A TensorBoard that shows them drops
  // what it has read.
  static StatusOr<std::unique_ptr<MetricsWriter>> Open(const std::string& folder);
  static Status Remove(const std::string& folder);

  // A row without a step is left out: a curve has no place for it.
  Status Append(const nlohmann::ordered_json& row) override;

 private:
  explicit EventFile(AppendedFile file) : file_(std::move(file)) {}

  AppendedFile file_;
};

namespace event_file_internal {

std::string Record(std::string_view data);
// What a file begins with.
std::string FirstRecords(double wall_time);
// Of a row with a step.
std::string RowRecord(const nlohmann::ordered_json& row, double wall_time);

}  // namespace event_file_internal

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_EVENT_FILE_H_
