// SPDX-License-Identifier: Apache-2.0
#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "autograd/autograd.h"
#include "autograd/engine.h"

namespace tessera {
namespace {

// Weights in [-1, 1] without structure; any fixed sequence would do.
double ProjectionWeight(size_t output, int64_t index) {
  return std::sin(1.0 + 12.9898 * static_cast<double>(index) +
                  78.233 * static_cast<double>(output));
}

double Project(const std::vector<Tensor>& outputs) {
  double sum = 0;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const std::vector<double> values = outputs[o].ToVector<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      sum += values[i] * ProjectionWeight(o, static_cast<int64_t>(i));
    }
  }
  return sum;
}

std::vector<Tensor> Weights(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> weights;
  for (size_t o = 0; o < outputs.size(); ++o) {
    Tensor w = Empty(outputs[o].shape(), DType::kFloat64);
    for (int64_t i = 0; i < w.numel(); ++i) w.data<double>()[i] = ProjectionWeight(o, i);
    weights.push_back(CastCopy(w, outputs[o].dtype()));
  }
  return weights;
}

// The gradients of leaves, such as a module's parameters, that `reached` are or depend on: put
// aside, and back at the end, so that a check leaves them as they were.
class GradientsAside {
 public:
  explicit GradientsAside(const std::vector<Tensor>& reached) {
    std::set<const GradRecord*> seen;
    std::vector<GradRecord*> to_visit;
    for (const Tensor& tensor : reached) to_visit.push_back(RecordOf(tensor));
    while (!to_visit.empty()) {
      GradRecord* const record = to_visit.back();
      to_visit.pop_back();
      if (record == nullptr || !seen.insert(record).second) continue;
      if (record->node == nullptr) {
        aside_.emplace_back(record->shared_from_this(), std::exchange(record->grad, Tensor()));
        continue;
      }
      for (const auto& input : record->node->inputs) to_visit.push_back(input.get());
    }
  }
  ~GradientsAside() {
    for (auto& [record, grad] : aside_) record->grad = std::move(grad);
  }
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<GradRecord>, Tensor>> aside_;
};

}  // namespace

GradCheckResult GradCheck(const GradCheckFn& fn, const std::vector<Tensor>& inputs,
                          const GradCheckOptions& options) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    if (!input.defined() || !IsFloating(input.dtype())) {
      leaves.push_back(input);
      continue;
    }
    TESSERA_CHECK(input.dtype() == DType::kFloat64, "gradcheck", "inputs must be float64, got ",
                  input);
    if (IsLeaf(input)) {
      TESSERA_CHECK(input.is_contiguous(), "gradcheck", "leaves must be contiguous, got ", input);
      leaves.push_back(input);
      continue;
    }
    Tensor leaf = EmptyLike(input);
    CopyInto(leaf, input);
    leaves.push_back(RequireGrad(leaf));
  }
  const std::vector<Tensor> outputs = fn(leaves);
  std::vector<Tensor> reached = outputs;
  reached.insert(reached.end(), leaves.begin(), leaves.end());
  const GradientsAside gradients(reached);
  Backward(outputs, Weights(outputs));

  GradCheckResult result;
  for (size_t k = 0; k < leaves.size(); ++k) {
    if (!leaves[k].defined() || !IsLeaf(leaves[k])) continue;
    const int64_t n = leaves[k].numel();
    const Tensor grad = Grad(leaves[k]);
    const std::vector<double> analytic =
        grad.defined() ? grad.ToVector<double>() : std::vector<double>(static_cast<size_t>(n), 0.0);
    const int64_t stride = std::max<int64_t>(1, n / options.max_elements);
    for (int64_t i = 0; i < n; i += stride) {
      const NoGrad no_grad;
      double* x = leaves[k].data<double>() + i;
      const double original = *x;
      *x = original + options.step;
      const double above = Project(fn(leaves));
      *x = original - options.step;
      const double below = Project(fn(leaves));
      *x = original;
      const double numeric = (above - below) / (2 * options.step);
      const double a = analytic[static_cast<size_t>(i)];
      const double error = std::abs(a - numeric) / (1 + std::abs(numeric));
      if (!(error <= result.worst)) {
        result.worst = error;
        result.message =
            Concat("input ", k, " element ", i, ": analytic ", a, ", numeric ", numeric);
      }
      if (!(error <= options.tolerance)) result.ok = false;
    }
  }
  return result;
}

}  // namespace tessera
