// SPDX-License-Identifier: Apache-2.0
// Tensors of all experts of a layer; gguf_names_test.cc has the keys.
#include <cstring>

#include "models/hub/gguf/convert_gguf.h"
#include "models/hub/gguf/gguf_config.h"
#include "models/hub/gguf/gguf_test_models.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

constexpr int kExperts = 3;
constexpr const char* kMatrices[] = {"gate", "up", "down"};

json SmallExperts(const std::string& type) {
  json config = SmallLlama();
  config.update({{"model_type", type},
                 {"num_local_experts", kExperts},
                 {"num_experts", kExperts},
                 {"n_routed_experts", kExperts},
                 {"num_experts_per_tok", 2},
                 {"moe_intermediate_size", 32},
                 {"shared_expert_intermediate_size", 64},
                 {"norm_topk_prob", type != "qwen2_moe"}});
  return config;
}

std::string Expert(int layer, int expert, std::string_view matrix, bool mixtral) {
  if (!mixtral) {
    return Concat("model.layers.", layer, ".mlp.experts.", expert, ".", matrix, "_proj.weight");
  }
  const char* const name = matrix == "gate" ? "w1" : matrix == "up" ? "w3" : "w2";
  return Concat("model.layers.", layer, ".block_sparse_moe.experts.", expert, ".", name, ".weight");
}

class GgufExpertsTest : public GgufTest {
 protected:
  struct Bytes {
    GgufTensor tensor;
    std::string bytes;
  };
  static std::vector<Bytes> TensorsOf(const GgufFile& file) {
    std::vector<Bytes> all;
    for (const GgufTensor& t : file.tensors()) {
      const char* const begin = reinterpret_cast<const char*>(file.BytesOf(t));
      all.push_back({t, std::string(begin, static_cast<size_t>(t.nbytes))});
    }
    return all;
  }
  std::string Written(const GgufMetadata& metadata, const std::vector<Bytes>& all,
                      const std::string& name) const {
    std::vector<GgufTensor> tensors;
    for (const Bytes& one : all) tensors.push_back(one.tensor);
    auto writer = GgufWriter::Create(Path(name), metadata, tensors);
    EXPECT_TRUE(writer.ok()) << Message(writer.status());
    for (const Bytes& one : all) {
      EXPECT_TRUE(writer->Append(one.bytes.data(), std::ssize(one.bytes)).ok());
    }
    EXPECT_TRUE(writer->Commit().ok());
    return Path(name);
  }
  static GgufMetadata With(GgufMetadata metadata, const std::string& key, const GgufValue& value) {
    std::erase_if(metadata, [&](const auto& held) { return held.first == key; });
    metadata.emplace_back(key, value);
    return metadata;
  }
};

class GgufExpertTypesTest : public GgufExpertsTest, public testing::WithParamInterface<int> {};

// One expert's numbers behind the other's, the file's bytes as they are.
TEST_P(GgufExpertTypesTest, ATensorHoldsAllExpertsOfALayer) {
  const char* const types[] = {"mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe"};
  const std::string type = types[GetParam() % 4];
  const bool quantised = GetParam() >= 4;
  const std::string folder = Saved("m", SmallExperts(type));
  if (quantised) QuantizeFolder(folder, QuantType::kQ8_0);
  ExpectRoundTrip(folder);
  const GgufFile file = Opened(Path("a.gguf"));
  const auto weights = WeightFiles::Open(folder);
  const int layer = 1;  // GLM's layer 0 has no experts
  for (const char* matrix : kMatrices) {
    const StatusOr<const GgufTensor*> tensor =
        file.Get(Concat("blk.", layer, ".ffn_", matrix, "_exps.weight"));
    ASSERT_TRUE(tensor.ok()) << Message(tensor.status());
    const int64_t inner = type == "mixtral" ? 96 : 32;
    const bool down = matrix == std::string("down");
    EXPECT_EQ((*tensor)->shape,
              (std::vector<int64_t>{kExperts, down ? 64 : inner, down ? inner : 64}));
    EXPECT_EQ((*tensor)->type.name, quantised ? "Q8_0" : "F16");
    std::string expected;
    for (int e = 0; e < kExperts; ++e) {
      std::string entry = Expert(layer, e, matrix, type == "mixtral");
      if (quantised) entry += ".q8_0";
      const Tensor t = *weights->Read(entry);
      expected.append(static_cast<const char*>(t.raw_data()), static_cast<size_t>(t.nbytes()));
    }
    ASSERT_EQ((*tensor)->nbytes, std::ssize(expected));
    EXPECT_EQ(std::memcmp(file.BytesOf(**tensor), expected.data(), expected.size()), 0) << matrix;
  }
  const auto router = file.Get("blk.1.ffn_gate_inp.weight");
  ASSERT_TRUE(router.ok());
  EXPECT_EQ((*router)->shape, (std::vector<int64_t>{kExperts, 64}));
  EXPECT_EQ((*router)->type.name, "F32");
  if (type == "qwen2_moe") {
    EXPECT_EQ((*file.Get("blk.1.ffn_gate_inp_shexp.weight"))->shape, std::vector<int64_t>{64});
  }
  EXPECT_EQ(file.Find("blk.0.ffn_gate_exps.weight") == nullptr, type == "glm4_moe");
  EXPECT_EQ(file.Find("blk.0.ffn_gate.weight") != nullptr, type == "glm4_moe");
  const auto model = LoadModel(Path("back"), {.require_weights = true});
  EXPECT_TRUE(model.ok()) << Message(model.status());
}

INSTANTIATE_TEST_SUITE_P(Types, GgufExpertTypesTest, testing::Range(0, 8));

// Experts in F32, with numbers that float16 does not hold, come back as they are.
TEST_F(GgufExpertsTest, WideExpertsKeepTheirBits) {
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallExperts("qwen3_moe")), Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  std::vector<Bytes> all = TensorsOf(file);
  std::map<std::string, std::vector<float>> expected;
  for (Bytes& one : all) {
    if (one.tensor.shape.size() != 3) continue;
    one.tensor.type = kGgufF32;
    std::vector<float>& values = expected[one.tensor.name];
    values.resize(one.bytes.size() / 2);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(i) + static_cast<float>(expected.size()));
    }
    one.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  }
  EXPECT_EQ(expected.size(), 6u);
  const Status status = ConvertFromGguf(Written(file.metadata(), all, "wide.gguf"), Path("back"));
  ASSERT_TRUE(status.ok()) << Message(status);
  const auto weights = WeightFiles::Open(Path("back"));
  for (int layer = 0; layer < 2; ++layer) {
    for (const char* matrix : kMatrices) {
      const auto& values = expected[Concat("blk.", layer, ".ffn_", matrix, "_exps.weight")];
      ASSERT_EQ(values.size(), size_t{kExperts * 32 * 64});
      for (int e = 0; e < kExperts; ++e) {
        const Tensor t = *weights->Read(Expert(layer, e, matrix, false));
        const auto begin = values.begin() + e * t.numel();
        EXPECT_EQ(t.dtype(), DType::kFloat32);
        EXPECT_EQ(t.ToVector<float>(), std::vector<float>(begin, begin + t.numel())) << matrix;
      }
    }
  }
}

// As files of Mixtral were before there were tensors of all experts.
TEST_F(GgufExpertsTest, ATensorForEachExpert) {
  const std::string folder = Saved("m", SmallExperts("mixtral"));
  QuantizeFolder(folder, QuantType::kQ4_0);
  ASSERT_TRUE(ConvertToGguf(folder, Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  std::vector<Bytes> older;
  for (const Bytes& one : TensorsOf(file)) {
    const size_t end = one.tensor.name.find("_exps");
    if (end == std::string::npos) {
      older.push_back(one);
      continue;
    }
    const size_t each = one.bytes.size() / kExperts;
    for (size_t e = 0; e < kExperts; ++e) {
      Bytes part = {one.tensor, one.bytes.substr(e * each, each)};
      part.tensor.name = Concat(one.tensor.name.substr(0, end), ".", e, ".weight");
      part.tensor.shape.erase(part.tensor.shape.begin());
      older.push_back(std::move(part));
    }
  }
  EXPECT_EQ(older.size(), file.tensors().size() + 2 * 3 * (kExperts - 1));
  const Status status =
      ConvertFromGguf(Written(file.metadata(), older, "older.gguf"), Path("back"));
  ASSERT_TRUE(status.ok()) << Message(status);
  ASSERT_TRUE(ConvertToGguf(Path("back"), Path("again.gguf")).ok());
  EXPECT_TRUE(GgufTest::Bytes(Path("again.gguf")) == GgufTest::Bytes(Path("m.gguf")));
}

// GLM-4.5's layer behind the last.
TEST_F(GgufExpertsTest, ALayerThatPredictsAFurtherTokenIsLeftOut) {
  ASSERT_TRUE(ConvertToGguf(Saved("m", SmallExperts("glm4_moe")), Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  std::vector<Bytes> all = TensorsOf(file);
  all.push_back({{"blk.2.nextn.eh_proj.weight", kGgufF32, {1, 2}}, std::string(8, '\0')});
  all.push_back({{"blk.2.attn_norm.weight", kGgufF32, {64}}, std::string(256, '\0')});
  const GgufMetadata longer = With(file.metadata(), "glm4moe.block_count", uint32_t{3});
  const std::string path =
      Written(With(longer, "glm4moe.nextn_predict_layers", uint32_t{1}), all, "longer.gguf");
  const Status status = ConvertFromGguf(path, Path("back"));
  ASSERT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ((*ReadJsonFile(Path("back/config.json")))["num_hidden_layers"], 2);
  ASSERT_TRUE(ConvertToGguf(Path("back"), Path("again.gguf")).ok());
  EXPECT_TRUE(GgufTest::Bytes(Path("again.gguf")) == GgufTest::Bytes(Path("m.gguf")));
  // A layer is one that the keys count.
  EXPECT_EQ(
      Refusal(ConvertFromGguf(Written(file.metadata(), all, "x.gguf"), Path("x"))),
      Path("x.gguf") + ": tensor 'blk.2.nextn.eh_proj.weight' has no place in a model of glm4moe");
}

TEST_F(GgufExpertsTest, WhatDoesNotFitIsRefused) {
  const std::string folder = Saved("m", SmallExperts("mixtral"));
  ASSERT_TRUE(ConvertToGguf(folder, Path("m.gguf")).ok());
  const GgufFile file = Opened(Path("m.gguf"));
  const auto refusal = [&](const GgufMetadata& metadata, const std::vector<Bytes>& tensors) {
    const std::string message =
        Refusal(ConvertFromGguf(Written(metadata, tensors, "x.gguf"), Path("out")));
    EXPECT_TRUE(message.starts_with(Path("x.gguf") + ": ")) << message;
    return message.substr(std::min(message.size(), Path("x.gguf: ").size()));
  };
  const std::vector<Bytes> all = TensorsOf(file);
  EXPECT_EQ(refusal(With(file.metadata(), "llama.expert_count", uint32_t{4}), all),
            "key 'llama.expert_count' is 4, and tensor 'blk.0.ffn_gate_inp.weight' has 3 rows");
  EXPECT_EQ(refusal(With(file.metadata(), "llama.expert_used_count", uint32_t{4}), all),
            "key 'llama.expert_used_count' is not between 1 and the number of experts");
  std::vector<Bytes> fewer = all;
  for (Bytes& one : fewer) {
    if (one.tensor.name != "blk.1.ffn_up_exps.weight") continue;
    one.tensor.shape[0] = 2;
    one.bytes.resize(one.bytes.size() / 3 * 2);
  }
  EXPECT_EQ(refusal(file.metadata(), fewer),
            "tensor 'blk.1.ffn_up_exps.weight' has shape [2, 96, 64]; the model asks for "
            "[3, 96, 64]");

  // Experts of two types.
  const std::string entry = Expert(0, 1, "up", true);
  Rewrite(folder, [&](Tensors& tensors) {
    tensors[entry + ".q8_0"] = Quantize(tensors[entry], QuantType::kQ8_0)->bytes;
    tensors.erase(entry);
  });
  EXPECT_EQ(Refusal(ConvertToGguf(folder, Path("y.gguf"))),
            folder + "/model.safetensors: tensor '" + entry +
                ".q8_0' would be Q8_0 in 'blk.0.ffn_up_exps.weight', which is F16: GGUF files have "
                "one type for all experts");
}

TEST_F(GgufExpertsTest, AnAdapterOfAnExpertIsRefused) {
  const std::string base = Saved("base", SmallExperts("qwen3_moe"));
  const std::string adapter = Path("adapter");
  std::filesystem::create_directories(adapter);
  Write("adapter/adapter_config.json",
        R"({"peft_type": "LORA", "r": 2, "target_modules": ["mlp.experts.1.up_proj"]})");
  Tensors matrices;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string begin =
        Concat("base_model.model.model.layers.", layer, ".mlp.experts.1.up_proj.");
    matrices[begin + "lora_A.weight"] = Full({2, 64}, 1.0);
    matrices[begin + "lora_B.weight"] = Full({32, 2}, 1.0);
  }
  WriteTensors(matrices, adapter + "/adapter_model.safetensors");
  EXPECT_EQ(Refusal(ConvertAdapterToGguf(adapter, base, Path("x.gguf"))),
            adapter +
                ": changes 'model.layers.0.mlp.experts.1.up_proj': adapters of experts are not "
                "written to GGUF files");
}

}  // namespace
}  // namespace tessera::models
