// SPDX-License-Identifier: Apache-2.0
// What a tsr_model is.
#ifndef TESSERA_RUNTIME_MODEL_H_
#define TESSERA_RUNTIME_MODEL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/mounted_folder.h"
#include "data/image/image_processor.h"
#include "data/tokenizer/tokenizer.h"
#include "models/generation/generation_config.h"
#include "models/model.h"
#include "runtime/tessera.h"

// Read-only once it is made.
struct tsr_model {
  // Where it was loaded from, unless that is a folder; what the weights are mapped from.
  std::optional<tessera::MountedFolder> archive;
  std::unique_ptr<const tessera::models::Model> model;
  std::unique_ptr<const tessera::data::Tokenizer> tokenizer;  // nullptr: it has none
  std::optional<tessera::data::ImageProcessor> pictures;
  tessera::models::GenerationConfig generation;  // the folder's defaults
  // For tsr_model_describe.
  std::string model_type;
  std::string architecture;
  std::string config;
  std::vector<std::string> labels;
  int64_t parameters = 0;
  int adapters = 0;
};

namespace tessera::runtime {

// InvalidArgument for a model that was loaded without one.
StatusOr<const data::Tokenizer*> TokenizerOf(const tsr_model& model);

}  // namespace tessera::runtime

#endif  // TESSERA_RUNTIME_MODEL_H_
