// SPDX-License-Identifier: Apache-2.0
// T5 v1.0 and v1.1 against the float64 reference that t5_model.py recorded from transformers.
#include <gtest/gtest.h>

#include "models/hub/load_model.h"
#include "tests/parity/golden_file.h"

namespace tessera::models {
namespace {

class T5GoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(T5GoldenTest, OutputsAndGradients) {
  const std::string folder = std::string("tests/parity/goldens/t5/") + GetParam();
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat32, 5e-6), std::pair(DType::kFloat64, 1e-12)}) {
    for (const char* kind : {"plain", "right", "left", "hidden"}) {
      const auto model = LoadModel(folder, {.build = {.dtype = dtype}, .require_weights = true});
      ASSERT_TRUE(model.ok()) << Message(model.status());
      const GoldenFile golden(folder + "/" + kind + ".safetensors");
      CheckGolden(golden, **model, tolerance, Concat(GetParam(), " ", kind, " ", dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, T5GoldenTest, testing::Values("v1_0", "v1_1"));

}  // namespace
}  // namespace tessera::models
