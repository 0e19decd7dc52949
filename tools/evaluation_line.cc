// SPDX-License-Identifier: Apache-2.0
#include "tools/evaluation_line.h"

#include <cmath>
#include <cstdio>

#include "nlohmann/json.hpp"

namespace tessera::tools {

std::string EvaluationLine(const train::RunSetup& setup, const train::EvaluationResult& found) {
  char text[64];
  std::snprintf(text, sizeof(text), "loss %.6f", found.loss);
  std::string line = text;
  if (setup.data.seq_len > 0 && found.metrics->empty()) {
    std::snprintf(text, sizeof(text), "  perplexity %.4f", std::exp(found.loss));
    line += text;
  }
  for (const auto& [name, value] : found.metrics->items()) {
    std::snprintf(text, sizeof(text), " %.4f", value.get<double>());
    line += "  " + name + text;
  }
  line += Concat("  samples ", setup.data.validation->size());
  if (setup.data.seq_len > 0) line += Concat("  tokens per sample ", setup.data.seq_len);
  return line + "\n";
}

}  // namespace tessera::tools
