// SPDX-License-Identifier: Apache-2.0
// Checkpoints of Megatron-LM's GPT-2, converted, against the reference that megatron_model.py
// computed as Megatron does.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "models/hub/convert_model.h"
#include "models/hub/load_model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "tests/parity/golden_file.h"

namespace tessera::models {
namespace {

constexpr const char* kGoldens = "tests/parity/goldens/megatron/";

std::string Fresh(const std::string& name) {
  std::string folder = testing::TempDir() + "/megatron_" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

class MegatronGoldenTest : public testing::TestWithParam<int> {};

TEST_P(MegatronGoldenTest, ConvertedItComputesTheSame) {
  const std::string folder = Fresh(std::to_string(GetParam()));
  const std::string checkpoint = Concat(kGoldens, "version", GetParam(), ".pt");
  const Status converted = ConvertModel(checkpoint, folder);
  ASSERT_TRUE(converted.ok()) << Message(converted);
  const auto model =
      LoadModel(folder, {.build = {.dtype = DType::kFloat64}, .require_weights = true});
  ASSERT_TRUE(model.ok()) << Message(model.status());
  EXPECT_EQ((*model)->config()["vocab_size"], 21);
  EXPECT_EQ((*model)->config()["dtype"], "float32");
  const GoldenFile golden(Concat(kGoldens, "plain.safetensors"));
  const Bundle out = (*model)->Run({{keys::kInputIds, golden.Get("in.input_ids")}}, {});
  const std::vector<double> got = out.at(keys::kLogits).ToVector<double>();
  const std::vector<double> want = golden.Get("out.logits").ToVector<double>();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-11) << i;
}

INSTANTIATE_TEST_SUITE_P(Versions, MegatronGoldenTest, testing::Values(0, 1, 2, 3));

// Changes a text of the checkpoint into another of the same length.
std::string FailureWith(const std::string& from, const std::string& to) {
  std::string bytes = *ReadFile(Concat(kGoldens, "version3.pt"));
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  bytes.replace(at, from.size(), to);
  const std::string path = Fresh("changed.pt");
  EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
  const std::string line = Message(ConvertModel(path, Fresh("changed")));
  EXPECT_EQ(line.rfind(path + ": ", 0), 0u) << line;
  return line.size() > path.size() + 2 ? line.substr(path.size() + 2) : line;
}

TEST(MegatronTest, OtherModelsAreRefusedByName) {
  EXPECT_EQ(FailureWith("word_embeddings", "woRd_embeddings").rfind("no checkpoint of a GPT-2", 0),
            0u);
  EXPECT_EQ(FailureWith("language_model", "language_modeL"),
            "no checkpoint of a GPT-2 of Megatron-LM "
            "('language_model.embedding.word_embeddings.weight' is missing); weights with other "
            "names are converted from a folder that holds them and their config.json");
  EXPECT_EQ(FailureWith("language_model", "decoder.layers"),
            "a checkpoint of Megatron Core, whose names are not read; Megatron-LM's "
            "tools/checkpoint/convert.py --loader core --saver legacy writes those that are");
  EXPECT_EQ(FailureWith("layers.1.mlp.dense_h_to_4h.bias", "layers.1.mlp.dense_h_to_4h.bIas"),
            "unknown tensor 'language_model.encoder.layers.1.mlp.dense_h_to_4h.bIas'");
  EXPECT_EQ(FailureWith("hidden_size", "hiDden_size"),
            "config of Megatron-LM: 'hidden_size' is missing, or out of range");
  // One byte behind the name: the value, of which 1 becomes 2.
  const std::string ranks = "tensor_model_parallel_size";
  std::string bytes = *ReadFile(Concat(kGoldens, "version3.pt"));
  const size_t one = bytes.find("K\x01", bytes.find(ranks));
  ASSERT_NE(one, std::string::npos);
  const std::string before = bytes.substr(bytes.find(ranks), one + 2 - bytes.find(ranks));
  std::string after = before;
  after.back() = 2;
  EXPECT_EQ(FailureWith(before, after),
            "args.tensor_model_parallel_size is 2; a checkpoint of a GPT-2 that is in one piece "
            "has 1");
}

}  // namespace
}  // namespace tessera::models
