// SPDX-License-Identifier: Apache-2.0
// What a tsr_model is.
#ifndef TESSERA_RUNTIME_MODEL_H_
#define TESSERA_RUNTIME_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "models/open/open_model.h"
#include "runtime/tessera.h"

// Read-only once it is made.
struct tsr_model : tessera::models::OpenedModel {
  // For tsr_model_describe.
  std::string model_type;
  std::string architecture;
  std::string config_text;
  std::vector<std::string> labels;
  std::vector<int64_t> end_tokens;
  int64_t parameters = 0;
  int adapters = 0;
};

namespace tessera::runtime {

// InvalidArgument for a model that was loaded without one.
StatusOr<const data::Tokenizer*> TokenizerOf(const tsr_model& model);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_MODEL_H_
