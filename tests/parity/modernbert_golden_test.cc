// SPDX-License-Identifier: Apache-2.0
// ModernBERT against the float64 reference that modernbert_model.py recorded from transformers.
#include <gtest/gtest.h>

#include "models/hub/load_model.h"
#include "tests/parity/golden_file.h"

namespace tessera::models {
namespace {

class ModernBertGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(ModernBertGoldenTest, OutputsAndGradients) {
  const std::string folder = std::string("tests/parity/goldens/modernbert/") + GetParam();
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat32, 5e-6), std::pair(DType::kFloat64, 1e-12)}) {
    for (const char* kind : {"plain", "right", "holes", "hidden"}) {
      const auto model = LoadModel(folder, {.build = {.dtype = dtype}, .require_weights = true});
      ASSERT_TRUE(model.ok()) << Message(model.status());
      const GoldenFile golden(folder + "/" + kind + ".safetensors");
      CheckGolden(golden, **model, tolerance, Concat(GetParam(), " ", kind, " ", dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModernBertGoldenTest,
                         testing::Values("masked_lm", "sequence", "tokens"));

}  // namespace
}  // namespace tessera::models
