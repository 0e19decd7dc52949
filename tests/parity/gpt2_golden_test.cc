// SPDX-License-Identifier: Apache-2.0
// GPT-2 against the float64 reference that gpt2_model.py recorded from transformers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "autograd/autograd.h"
#include "core/safetensors.h"
#include "models/generation/generate.h"
#include "models/hub/load_model.h"
#include "models/model.h"
#include "models/model_keys.h"
#include "optim/adam/adam.h"
#include "optim/parameter_groups.h"

namespace tessera::models {
namespace {

constexpr double kTolerance = 5e-6;  // of ||a-b||/||b||, in float32
constexpr double kLossTolerance = 1e-5;
constexpr double kZero = 1e-12;  // below, a gradient is zero in theory
constexpr double kAbsolute = 1e-7;

class Golden {
 public:
  explicit Golden(const std::string& path) : file_(*SafetensorsFile::Open(path)) {}

  Tensor Get(const std::string& name) const {
    const TensorView view = *file_.Get(name);
    const Tensor t = Empty(Shape(view.shape), view.dtype);
    std::memcpy(t.raw_data(), view.data, static_cast<size_t>(view.nbytes));
    return t;
  }
  // Those whose names begin with `prefix`, without it.
  std::map<std::string, Tensor> GetAll(const std::string& prefix) const {
    std::map<std::string, Tensor> tensors;
    for (const auto& entry : file_.entries()) {
      if (entry.name.rfind(prefix, 0) != 0) continue;
      tensors[entry.name.substr(prefix.size())] = Get(entry.name);
    }
    return tensors;
  }

 private:
  SafetensorsFile file_;
};

// `counts`, where given, says which rows of the tensor are compared.
void ExpectNear(const Tensor& actual, const Tensor& expected, double tolerance,
                const std::string& name, const std::vector<int64_t>& counts = {}) {
  ASSERT_EQ(actual.shape(), expected.shape()) << name;
  const std::vector<double> a = actual.ToVector<double>();
  const std::vector<double> b = expected.ToVector<double>();
  const size_t row = counts.empty() ? 1 : a.size() / counts.size();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!counts.empty() && counts[i / row] == 0) continue;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  difference = std::sqrt(difference);
  norm = std::sqrt(norm);
  if (norm < kZero) {
    EXPECT_LE(difference, kAbsolute) << name;
  } else {
    EXPECT_LE(difference / norm, tolerance) << name;
  }
}

class Gpt2GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Folder() const { return std::string("tests/parity/goldens/gpt2/") + GetParam(); }
  Golden Open(const std::string& name) const {
    return Golden(Folder() + "/" + name + ".safetensors");
  }
  std::unique_ptr<Model> Load(DType dtype) const {
    auto model = LoadModel(Folder(), {.build = {.dtype = dtype}, .require_weights = true});
    EXPECT_TRUE(model.ok()) << Message(model.status());
    return *std::move(model);
  }
};

TEST_P(Gpt2GoldenTest, OutputsAndGradients) {
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kFloat32, kTolerance), std::pair(DType::kFloat64, 1e-12)}) {
    for (const std::string kind : {"plain", "right", "left_positions", "hidden"}) {
      const std::string where = Concat(kind, " ", dtype, " ");
      const Golden golden = Open(kind);
      const auto model = Load(dtype);
      Bundle inputs;
      for (const auto& [name, t] : golden.GetAll("in.")) inputs.SetNamed(name, t);
      std::vector<int64_t> counts;
      if (inputs.has(keys::kAttentionMask))
        counts = inputs.at(keys::kAttentionMask).ToVector<int64_t>();
      const Bundle outputs = model->Run(inputs, {.all_hidden_states = kind == "hidden"});
      for (const auto& [name, t] : golden.GetAll("out.")) {
        ExpectNear(*outputs.FindNamed(name), t, tolerance, where + name,
                   name == "loss" ? std::vector<int64_t>() : counts);
      }
      Backward(outputs.at(keys::kLoss));
      for (const auto& [name, t] : golden.GetAll("grad.")) {
        const nn::Parameter* parameter = model->FindParameter(name);
        ASSERT_NE(parameter, nullptr) << name;
        const Tensor grad = CastCopy(Grad(parameter->tensor), DType::kFloat64);
        for (const nn::Parameter* use : model->Parameters()) {
          if (use->tied_to == parameter) {
            AddInto(grad, CastCopy(Grad(use->tensor), DType::kFloat64));
          }
        }
        ExpectNear(grad, t, tolerance, where + name);
      }
    }
  }
}

TEST_P(Gpt2GoldenTest, LossesOfTwentyAdamWSteps) {
  const Golden golden = Open("runs");
  const std::vector<int64_t> ids = golden.Get("batches").ToVector<int64_t>();
  const std::vector<double> expected = golden.Get("losses").ToVector<double>();
  const Shape shape = golden.Get("batches").shape();  // [steps, rows, tokens]
  const auto model = Load(DType::kFloat32);
  std::vector<optim::Parameter> parameters;
  for (nn::Parameter* p : model->Parameters()) {
    if (p->tied_to != nullptr) continue;
    parameters.push_back({p->name, p->tensor});
    for (nn::Parameter* use : model->Parameters()) {
      if (use->tied_to == p) parameters.back().tied.push_back(use->tensor);
    }
  }
  optim::AdamW optimizer(optim::SplitByDecay(parameters, {.weight_decay = 0.1}),
                         {.lr = 1e-3, .betas = {0.9, 0.95}, .eps = 1e-8});
  const int64_t batch = shape[1] * shape[2];
  for (int64_t step = 0; step < shape[0]; ++step) {
    const std::vector<int64_t> rows(ids.begin() + step * batch, ids.begin() + (step + 1) * batch);
    const Tensor ids_BT = Tensor::FromVector(rows, {shape[1], shape[2]});
    const Bundle outputs = model->Run({{keys::kInputIds, ids_BT}, {keys::kLabels, ids_BT}}, {});
    EXPECT_NEAR(outputs.at(keys::kLoss).Item(), expected[static_cast<size_t>(step)], kLossTolerance)
        << "step " << step + 1;
    Backward(outputs.at(keys::kLoss));
    optimizer.Step();
    optimizer.ZeroGrad();
  }
  // The steps change the losses by far more than the tolerance.
  EXPECT_LT(expected.back(), expected.front() - 0.1);
}

TEST_P(Gpt2GoldenTest, GreedyGeneration) {
  const std::vector<int64_t> expected = Open("runs").Get("greedy").ToVector<int64_t>();
  const auto model = Load(DType::kFloat32);
  auto config = ReadGenerationConfig(Folder(), model->config());
  ASSERT_TRUE(config.ok()) << Message(config.status());
  config->max_new_tokens = 12;
  const std::vector<int64_t> prompt(expected.begin(), expected.begin() + 3);
  const auto results = Generate(*model, {prompt}, *config);
  ASSERT_TRUE(results.ok()) << Message(results.status());
  EXPECT_EQ((*results)[0].ids, std::vector<int64_t>(expected.begin() + 3, expected.end()));
}

INSTANTIATE_TEST_SUITE_P(Models, Gpt2GoldenTest, testing::Values("tied", "untied"));

}  // namespace
}  // namespace tessera::models
