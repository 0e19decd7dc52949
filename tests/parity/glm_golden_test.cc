// SPDX-License-Identifier: Apache-2.0
// GLM and ChatGLM-6B against the float64 reference that glm_model.py recorded.
#include <gtest/gtest.h>

#include "models/hub/load_model.h"
#include "tests/parity/golden_file.h"

namespace tessera::models {
namespace {

void Check(const std::string& name, const std::vector<std::string>& kinds) {
  const std::string folder = "tests/parity/goldens/glm/" + name;
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat32, 5e-6), std::pair(DType::kFloat64, 1e-12)}) {
    for (const std::string& kind : kinds) {
      const auto model = LoadModel(folder, {.build = {.dtype = dtype}, .require_weights = true});
      ASSERT_TRUE(model.ok()) << Message(model.status());
      const GoldenFile golden(folder + "/" + kind + ".safetensors");
      CheckGolden(golden, **model, tolerance, Concat(name, " ", kind, " ", dtype));
    }
  }
}

TEST(GlmGoldenTest, Glm) { Check("glm", {"plain", "prefix", "pairs", "cloze", "hidden"}); }
TEST(GlmGoldenTest, ChatGlm) { Check("chatglm", {"plain", "left", "pairs", "hidden"}); }

}  // namespace
}  // namespace tessera::models
