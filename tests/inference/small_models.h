// SPDX-License-Identifier: Apache-2.0
// A small model of each family, for tests of what runs them.
//
//   TESSERA_ASSIGN_OR_RETURN(auto model, models::BuildModel(SmallConfig("t5"), {.seed = 3}));
//   const Bundle outputs = model->Run(SmallInputs("t5"), {});
#ifndef TESSERA_TESTS_INFERENCE_SMALL_MODELS_H_
#define TESSERA_TESTS_INFERENCE_SMALL_MODELS_H_

#include <string>

#include "core/bundle.h"
#include "core/tensor.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera {

// A model_type each.
inline constexpr const char* kSmallModels[] = {"gpt2", "bert", "vit", "t5", "glm"};

// Its config.json. GPT-2's vocabulary is that of data::ByteTokenizer.
nlohmann::json SmallConfig(const std::string& model_type);

// What Model::Run takes, two rows of it; a picture of a colour gradient for ViT.
Bundle SmallInputs(const std::string& model_type);

// The name, shape and a fingerprint of the bits of each tensor, a line each.
std::string FingerprintOf(const Bundle& outputs);

}  // namespace tessera

#endif  // TESSERA_TESTS_INFERENCE_SMALL_MODELS_H_
