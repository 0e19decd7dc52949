// SPDX-License-Identifier: Apache-2.0
// Every model family with quantised weights (nn/quantized_weight.h):
//   - quantised as it is loaded, or in its folder: the same bits,
//   - beside the same weights, dense: what rounding activations costs,
//   - on two tensor-parallel ranks, where some shares do not fit and are dense,
//   - an adapter trains over them,
//   - made dense again and quantised once more: the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/file.h"
#include "core/safetensors.h"
#include "core/thread_communicator.h"
#include "models/family.h"
#include "models/hub/adapter.h"
#include "models/hub/convert_model.h"
#include "models/hub/load_model.h"
#include "models/hub/save_model.h"
#include "models/model_keys.h"
#include "nn/quantized_weight.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "tests/parallel/family_cases.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using models::Bundle;
using models::Model;
using nlohmann::json;

// With rows of 32 and its multiples, or of 256.
json Widened(json config, bool by_256) {
  const auto set = [&](const char* key, int64_t value) {
    if (config.contains(key)) config[key] = value;
  };
  for (const char* key : {"hidden_size", "n_embd", "d_model"}) set(key, by_256 ? 256 : 64);
  for (const char* key : {"intermediate_size", "moe_intermediate_size",
                          "shared_expert_intermediate_size", "d_ff", "inner_hidden_size"}) {
    set(key, by_256 ? 512 : 96);
  }
  set("head_dim", 32);
  set("d_kv", 16);
  // Heads whose size is not a key of its own share the width out.
  const bool shares = !config.contains("head_dim") && config.contains("num_attention_heads");
  if (shares &&
      config["hidden_size"].get<int64_t>() % config["num_attention_heads"].get<int64_t>()) {
    config["num_attention_heads"] = 4;
  }
  return config;
}

struct Case {
  FamilyCase family;
  QuantType type;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.family.name << "_" << QuantTypeName(c.type);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  // Every type with one family, and three with every family.
  const std::vector<FamilyCase> families = FamilyCases();
  for (const FamilyCase& family : families) {
    for (const QuantType type : kQuantTypes) {
      const bool first = family.name == families[0].name;
      if (!first && type > QuantType::kQ4_0) continue;
      const json config = Widened(family.config, LayoutOf(type).columns == 256);
      cases.push_back({{family.name, config, family.inputs}, type});
    }
  }
  return cases;
}

// Whether bytes are the same when numbers that were quantised are quantised again.
bool Stays(QuantType type) { return type == QuantType::kInt8 || type == QuantType::kQ8_0; }

std::unique_ptr<Model> Load(const std::string& folder, const models::LoadOptions& options) {
  auto model = models::LoadModel(folder, options);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  return *std::move(model);
}

int64_t CountQuantised(Model& model) {
  int64_t count = 0;
  model.VisitParameters([&](const nn::Parameter& p) { count += nn::IsDense(p) ? 0 : 1; });
  return count;
}

class QuantizedModelsTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    fs::remove_all(Path(""));
    auto built = models::BuildModel(GetParam().family.config, {.seed = 5});
    ASSERT_TRUE(built.ok()) << Message(built.status());
    ASSERT_TRUE(models::SaveModel(**built, dense_).ok());
    const Status converted =
        models::ConvertModel(dense_, quantised_, {.quantize = GetParam().type});
    ASSERT_TRUE(converted.ok()) << Message(converted);
  }
  void TearDown() override { fs::remove_all(Path("")); }
  // A bound of a distance. Rounding may give a token another expert, which changes its whole row;
  // rows that have nothing to do with each other are 1.4 apart.
  static double Bound(double dense) {
    const bool has_experts = GetParam().family.config.contains("num_experts_per_tok");
    return has_experts ? std::min(8 * dense, 0.7) : dense;
  }

  std::string Path(const std::string& name) const {
    return JoinPath(testing::TempDir(), "quantized_models") + "/" + name;
  }
  Bundle Run(Model& model, const Bundle& inputs) const {
    const NoGrad no_grad;
    return model.Run(inputs, {});
  }

  const std::string dense_ = Path("dense");
  const std::string quantised_ = Path("quantised");
};

// What a model gives before its loss: its last layer's output, in most families.
std::vector<float> FirstOutput(Model& model, const Bundle& inputs) {
  const NoGrad no_grad;
  const Bundle outputs = model.Run(inputs, {});
  const auto& [name, t] = outputs.entries()[0];
  EXPECT_NE(name, keys::kLoss.name());
  return CastCopy(t, DType::kFloat32).ToVector<float>();
}

// How far `a` is from `b`, in its length.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, length = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    length += double{b[i]} * b[i];
  }
  return std::sqrt(difference / length);
}

void ExpectSame(const Bundle& a, const Bundle& b) {
  ASSERT_EQ(a.entries().size(), b.entries().size());
  for (size_t i = 0; i < a.entries().size(); ++i) {
    const auto& [name, t] = a.entries()[i];
    EXPECT_EQ(b.entries()[i].first, name);
    EXPECT_EQ(b.entries()[i].second.ToVector<float>(), t.ToVector<float>()) << name;
  }
}

TEST_P(QuantizedModelsTest, IsTheSameFromEitherFolderAndNearTheDense) {
  const Bundle inputs = GetParam().family.inputs(0);
  const auto held = Load(quantised_, {.require_weights = true, .map_weights = true});
  const auto made = Load(dense_, {.map_weights = true, .quantize = GetParam().type});
  EXPECT_GT(CountQuantised(*held), 4);
  EXPECT_EQ(CountQuantised(*made), CountQuantised(*held));
  const Bundle outputs = Run(*held, inputs);
  ExpectSame(Run(*made, inputs), outputs);

  const std::vector<float> output = FirstOutput(*held, inputs);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const auto half = Load(quantised_, {.build = {.dtype = dtype}});
    EXPECT_EQ(CountQuantised(*half), CountQuantised(*held));
    EXPECT_LT(Distance(FirstOutput(*half, inputs), output), Bound(0.1)) << dtype;
  }
  const auto wide = models::LoadModel(quantised_, {.build = {.dtype = DType::kFloat64}});
  EXPECT_EQ(Message(wide.status()),
            quantised_ + ": quantised weights go with float32, bfloat16 and float16, not float64");
  EXPECT_EQ(Message(models::LoadModel("gpt2", {.quantize = GetParam().type}).status()),
            "gpt2: a preset has no weights; train it first");

  // The same numbers, dense.
  const std::string back = Path("back");
  ASSERT_TRUE(models::ConvertModel(quantised_, back, {.dtype = DType::kFloat32}).ok());
  const auto dense = Load(back, {});
  EXPECT_EQ(CountQuantised(*dense), 0);
  const double distance = Distance(output, FirstOutput(*dense, inputs));
  EXPECT_LT(distance, Bound(0.06));
  EXPECT_GT(distance, 0);
  if (!Stays(GetParam().type)) return;
  const std::string again = Path("again");
  ASSERT_TRUE(models::ConvertModel(back, again, {.quantize = GetParam().type}).ok());
  EXPECT_EQ(*ReadFile(JoinPath(again, "model.safetensors")),
            *ReadFile(JoinPath(quantised_, "model.safetensors")));
}

TEST_P(QuantizedModelsTest, OnTwoRanks) {
  const Bundle inputs = GetParam().family.inputs(0);
  const std::vector<float> output = FirstOutput(*Load(quantised_, {}), inputs);
  for (const bool in_folder : {true, false}) {
    RunRanks(2, [&](std::shared_ptr<Communicator> world) {
      models::LoadOptions options = {.build = {.tensor_parallel = world}};
      if (!in_folder) options.quantize = GetParam().type;
      const auto model = Load(in_folder ? quantised_ : dense_, options);
      EXPECT_GT(CountQuantised(*model), 2);
      // What is dense on a rank has not lost what few bits lose, unless the folder has.
      const bool lost = in_folder || Stays(GetParam().type);
      const double distance = Distance(FirstOutput(*model, inputs), output);
      const double rough = GetParam().type == QuantType::kQ2K ? 0.5 : Bound(0.25);
      EXPECT_LT(distance, lost ? Bound(0.05) : rough);
    });
  }
}

TEST_P(QuantizedModelsTest, IsPlannedOnMeta) {
  const auto meta = Load(quantised_, {.build = {.device = Device::Meta(DeviceType::kCpu)}});
  EXPECT_EQ(CountQuantised(*meta), CountQuantised(*Load(quantised_, {})));
}

// Where the dense weights are the same, so are the gradients of what is beside them, but for
// the rounding of activations.
TEST_P(QuantizedModelsTest, AnAdapterTrainsOverIt) {
  const auto model = Load(quantised_, {.map_weights = true});
  models::AdapterConfig adapter = {.r = 4, .lora_alpha = 8, .init = "false"};
  adapter.target_modules.all_linear = true;
  const auto attached = models::AttachAdapter(*model, adapter);
  ASSERT_TRUE(attached.ok()) << Message(attached.status());
  Backward(model->Run(GetParam().family.inputs(0), {}).at(keys::kLoss));
  int64_t trained = 0;
  model->VisitParameters([&](const nn::Parameter& p) {
    if (p.name.find("lora_") == std::string::npos) return;
    if (!RequiresGrad(p.tensor)) return;
    const Tensor grad = Grad(p.tensor);
    ASSERT_TRUE(grad.defined()) << p.name;
    for (const float g : grad.ToVector<float>()) ASSERT_TRUE(std::isfinite(g)) << p.name;
    ++trained;
  });
  EXPECT_GT(trained, 7);
}

TEST(QuantizedFolderTest, IsRefusedWhereNoRowFits) {
  const auto& families = FamilyCases();
  const auto llama = std::find_if(families.begin(), families.end(),
                                  [](const FamilyCase& family) { return family.name == "llama"; });
  ASSERT_NE(llama, families.end());
  const auto built = models::BuildModel(Widened(llama->config, false), {.seed = 5});
  ASSERT_TRUE(built.ok()) << Message(built.status());
  const std::string folder = JoinPath(testing::TempDir(), "no_row_fits");
  EXPECT_EQ(Message(models::SaveModel(**built, folder, nullptr, {.quantize = QuantType::kQ4K})),
            folder + ": no weight can be q4_k, which needs rows of a multiple of 256 numbers");
  EXPECT_FALSE(fs::exists(folder));
}

INSTANTIATE_TEST_SUITE_P(Families, QuantizedModelsTest, testing::ValuesIn(Cases()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace tessera
