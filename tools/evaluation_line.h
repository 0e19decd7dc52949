// SPDX-License-Identifier: Apache-2.0
// What `tessera eval` and `tessera predict` print of an evaluation.
#ifndef TESSERA_TOOLS_EVALUATION_LINE_H_
#define TESSERA_TOOLS_EVALUATION_LINE_H_

#include <string>

#include "train/evaluator.h"
#include "train/run/run_setup.h"

namespace tessera::tools {

// "loss 0.412345  perplexity 1.5104  accuracy 0.8211  samples 872".
std::string EvaluationLine(const train::RunSetup& setup, const train::EvaluationResult& found);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_EVALUATION_LINE_H_
