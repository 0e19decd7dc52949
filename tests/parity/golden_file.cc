// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autograd/autograd.h"
#include "models/model_keys.h"

namespace tessera::models {
namespace {

constexpr double kZero = 1e-12;  // below, a gradient is zero in theory
constexpr double kAbsolute = 1e-7;

double Norm(const std::map<std::string, Tensor>& tensors) {
  double sum = 0;
  for (const auto& [name, t] : tensors) {
    for (const double v : t.ToVector<double>()) sum += v * v;
  }
  return std::sqrt(sum);
}

// `counts`, where given, says which rows of the tensor are compared; `scale` is the norm that an
// expected zero is measured with.
void ExpectNear(const Tensor& actual, const Tensor& expected, double tolerance, double scale,
                const std::string& name, const std::vector<int64_t>& counts) {
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
    EXPECT_LE(difference, kAbsolute * std::max(1.0, scale)) << name;
  } else {
    EXPECT_LE(difference / norm, tolerance) << name;
  }
}

// The gradients of all uses of a parameter.
Tensor WholeGradient(Model& model, const nn::Parameter& parameter) {
  const Tensor sum = Zeros(parameter.tensor.shape(), DType::kFloat64);
  for (const nn::Parameter* use : model.Parameters()) {
    if (use != &parameter && use->tied_to != &parameter) continue;
    const Tensor grad = Grad(use->tensor);
    if (grad.defined()) AddInto(sum, CastCopy(grad, DType::kFloat64));
  }
  return sum;
}

}  // namespace

Tensor GoldenFile::Get(const std::string& name) const {
  const TensorView view = *file_.Get(name);
  const Tensor t = Empty(Shape(view.shape), view.dtype);
  std::memcpy(t.raw_data(), view.data, static_cast<size_t>(view.nbytes));
  return t;
}

std::map<std::string, Tensor> GoldenFile::GetAll(const std::string& prefix) const {
  std::map<std::string, Tensor> tensors;
  for (const auto& entry : file_.entries()) {
    if (entry.name.rfind(prefix, 0) != 0) continue;
    tensors[entry.name.substr(prefix.size())] = Get(entry.name);
  }
  return tensors;
}

void CheckGolden(const GoldenFile& golden, Model& model, double tolerance,
                 const std::string& where) {
  const DType dtype = model.Parameters()[0]->tensor.dtype();
  Bundle inputs;
  for (const auto& [name, t] : golden.GetAll("in.")) {
    inputs.SetNamed(name, IsFloating(t.dtype()) ? CastCopy(t, dtype) : t);
  }
  std::vector<int64_t> counts;
  const bool padded =
      inputs.has(keys::kAttentionMask) && inputs.at(keys::kAttentionMask).ndim() == 2;
  if (padded) counts = inputs.at(keys::kAttentionMask).ToVector<int64_t>();
  const std::map<std::string, Tensor> expected = golden.GetAll("out.");
  const Bundle outputs =
      model.Run(inputs, {.all_hidden_states = expected.count(HiddenStateName(0)) > 0});
  EXPECT_EQ(outputs.entries().size(), expected.size()) << where;
  for (const auto& [name, t] : expected) {
    const bool by_token =
        t.ndim() == 3 && padded && t.size(1) == inputs.at(keys::kAttentionMask).size(1);
    ExpectNear(*outputs.FindNamed(name), t, tolerance, 0.0, where + " " + name,
               by_token ? counts : std::vector<int64_t>());
  }
  const std::map<std::string, Tensor> gradients = golden.GetAll("grad.");
  if (gradients.empty()) return;
  Backward(outputs.at(keys::kLoss));
  const double scale = Norm(gradients);
  for (const auto& [name, t] : gradients) {
    const nn::Parameter* parameter = model.FindParameter(name);
    ASSERT_NE(parameter, nullptr) << name;
    ExpectNear(WholeGradient(model, *parameter), t, tolerance, scale, where + " " + name, {});
  }
}

}  // namespace tessera::models
