// SPDX-License-Identifier: Apache-2.0
#include "tools/evaluation_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace tessera::tools {

WatchedData::WatchedData(const data::Dataset& data, const std::string& what, int64_t most_rows)
    : data_(data),
      most_rows_(most_rows == 0 ? data.size() : std::min(most_rows, data.size())),
      progress_(std::make_unique<train::WorkProgress>(stderr, what, "rows")),
      rows_(std::make_unique<std::atomic<int64_t>>(0)) {}

StatusOr<data::Batch> WatchedData::MakeBatch(std::span<const data::Sample> samples) const {
  progress_->Show(rows(), most_rows_);
  StatusOr<data::Batch> batch = data_.MakeBatch(samples);
  if (batch.ok()) *rows_ += batch->rows;
  return batch;
}

std::string EvaluationLine(const train::RunSetup& setup, const train::EvaluationResult& found,
                           int64_t rows) {
  std::string line = absl::StrFormat("loss %.6f", found.loss);
  if (setup.data.seq_len > 0 && found.metrics->empty()) {
    absl::StrAppendFormat(&line, "  perplexity %.4f", std::exp(found.loss));
  }
  for (const auto& [name, value] : found.metrics->items()) {
    absl::StrAppendFormat(&line, "  %s %.4f", name, value.get<double>());
  }
  line += Concat("  samples ", rows);
  if (setup.data.seq_len > 0) line += Concat("  tokens per sample ", setup.data.seq_len);
  return line + "\n";
}

}  // namespace tessera::tools
