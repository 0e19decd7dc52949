// SPDX-License-Identifier: Apache-2.0
// Folders that transformers 4.57 and 5 saved, against what their models compute in float64
// (folders.py): heads that are not tied though config.json says so, T5's scale, the decoder's bias
// of BERT, half precision, and pytorch_model.bin in each of its formats.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "models/hub/convert_model.h"
#include "models/hub/load_model.h"
#include "tests/parity/golden_file.h"

namespace tessera::models {
namespace {

constexpr const char* kGoldens = "tests/parity/goldens/folders/";

// ||a-b|| <= tolerance ||b|| for every output that is recorded.
void ExpectComputes(const std::string& folder, const GoldenFile& golden, DType dtype,
                    double tolerance) {
  const auto model = LoadModel(folder, {.build = {.dtype = dtype}, .require_weights = true});
  ASSERT_TRUE(model.ok()) << Message(model.status());
  Bundle inputs;
  for (const auto& [name, t] : golden.GetAll("in.")) inputs.SetNamed(name, t);
  const Bundle outputs = (*model)->Run(inputs, {});
  const std::map<std::string, Tensor> expected = golden.GetAll("out.");
  ASSERT_FALSE(expected.empty());
  for (const auto& [name, t] : expected) {
    const std::vector<double> got = outputs.FindNamed(name)->ToVector<double>();
    const std::vector<double> want = t.ToVector<double>();
    ASSERT_EQ(got.size(), want.size()) << name;
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      difference += (got[i] - want[i]) * (got[i] - want[i]);
      norm += want[i] * want[i];
    }
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm)) << folder << " " << name;
  }
}

class FoldersGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(FoldersGoldenTest, AsItsModel) {
  const std::string folder = Concat(kGoldens, GetParam());
  const GoldenFile golden(folder + "/plain.safetensors");
  ExpectComputes(folder, golden, DType::kFloat32, 5e-6);
  ExpectComputes(folder, golden, DType::kFloat64, 1e-12);
}

TEST_P(FoldersGoldenTest, ConvertedItIsTheSame) {
  const std::string folder = Concat(kGoldens, GetParam());
  const std::string converted = Concat(testing::TempDir(), "/converted_", GetParam());
  std::filesystem::remove_all(converted);
  const Status status = ConvertModel(folder, converted, {.max_shard_bytes = 1000});
  ASSERT_TRUE(status.ok()) << Message(status);
  ExpectComputes(converted, GoldenFile(folder + "/plain.safetensors"), DType::kFloat64, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Folders, FoldersGoldenTest,
                         testing::Values("t5-v1_1_differing_of_5", "t5-v1_1_plain_of_5",
                                         "t5-v1_1_plain_of_4", "mt5_plain_of_5",
                                         "gpt2_differing_of_5", "bert-mlm_untied_of_5",
                                         "bert-mlm_bias_of_5", "gpt2_bin_of_4", "gpt2_legacy_of_4",
                                         "gpt2_shards_of_4", "bert-sequence_bfloat16_of_5"));

}  // namespace
}  // namespace tessera::models
