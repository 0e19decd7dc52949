// SPDX-License-Identifier: Apache-2.0
#include "tools/evaluation_line.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace tessera::tools {

std::string EvaluationLine(const train::RunSetup& setup, const train::EvaluationResult& found) {
  std::string line = absl::StrFormat("loss %.6f", found.loss);
  if (setup.data.seq_len > 0 && found.metrics->empty()) {
    absl::StrAppendFormat(&line, "  perplexity %.4f", std::exp(found.loss));
  }
  for (const auto& [name, value] : found.metrics->items()) {
    absl::StrAppendFormat(&line, "  %s %.4f", name, value.get<double>());
  }
  line += Concat("  samples ", setup.data.validation->size());
  if (setup.data.seq_len > 0) line += Concat("  tokens per sample ", setup.data.seq_len);
  return line + "\n";
}

}  // namespace tessera::tools
