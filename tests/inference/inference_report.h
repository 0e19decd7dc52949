// SPDX-License-Identifier: Apache-2.0
// What a program does that runs models and never trains one: every family computes, and a small GPT
// is saved, loaded as a Hugging Face folder and continues a text.
#ifndef TESSERA_TESTS_INFERENCE_INFERENCE_REPORT_H_
#define TESSERA_TESTS_INFERENCE_INFERENCE_REPORT_H_

#include <string>

#include "base/status.h"

namespace tessera {

// A line per output of each family, with a fingerprint of its bits, and the line of the tokens that
// were generated. `folder` must not exist; the model is written there.
StatusOr<std::string> InferenceReport(const std::string& folder);

}  // namespace tessera

#endif  // TESSERA_TESTS_INFERENCE_INFERENCE_REPORT_H_
