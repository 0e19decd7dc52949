// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/grouped_linear.h"

#include <utility>

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/matmul/product.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// R rows, in and out features.

constexpr char kName[] = "grouped_linear";

void Check(const Tensor& x, const std::vector<int64_t>& counts, const std::vector<Tensor>& weights,
           LinearLayout layout) {
  int64_t rows = 0;
  for (const int64_t count : counts) rows += count;
  TESSERA_CHECK(
      !weights.empty() && counts.size() == weights.size() && x.ndim() == 2 && rows == x.size(0),
      kName, counts.size(), " counts of ", rows, " rows and ", weights.size(), " weights for x ",
      x);
  const Shape& shape = weights[0].shape();
  for (const Tensor& weight : weights) {
    const bool fits = weight.dtype() == x.dtype() ||
                      (weight.dtype() == DType::kFloat32 && x.dtype() == AutocastDType());
    TESSERA_CHECK(weight.ndim() == 2 && weight.shape() == shape && fits &&
                      weight.size(layout == LinearLayout::kOutIn ? 1 : 0) == x.size(1) &&
                      weight.device() == x.device(),
                  kName, "a weight ", weight, " for x ", x,
                  ": all must have one shape with x's features");
  }
}

// A matrix's rows of each layer.
std::vector<Tensor> RowsOf(const Tensor& x, const std::vector<int64_t>& counts) {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    parts.push_back(Slice(x, 0, begin, count));
    begin += count;
  }
  return parts;
}

// Each layer's rows times its matrix [in, out], or with `back` times that turned round.
Tensor Multiply(const Tensor& x, const std::vector<int64_t>& counts,
                const std::vector<Tensor>& weights, LinearLayout layout, bool back) {
  const bool turned = (layout == LinearLayout::kOutIn) != back;
  const Tensor y = Empty({x.size(0), weights[0].size(turned ? 0 : 1)}, x.dtype(), x.device());
  const std::vector<Tensor> from = RowsOf(x, counts);
  const std::vector<Tensor> to = RowsOf(y, counts);
  std::vector<OneProduct> products;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (counts[i] == 0) continue;
    const Tensor weight = Cast(weights[i].Detach(), x.dtype());
    products.push_back({from[i], turned ? Transposed(weight) : weight, to[i]});
  }
  SideBySide(products);
  return y;
}

// Of weights that want one, in the order of the weights.
void SetWeightGradients(const Tensor& dy, const Tensor& x, const std::vector<int64_t>& counts,
                        const std::vector<std::pair<Shape, DType>>& weights, LinearLayout layout,
                        GradContext* ctx) {
  const std::vector<Tensor> outs = RowsOf(dy, counts);
  const std::vector<Tensor> ins = RowsOf(x, counts);
  std::vector<OneProduct> products;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int input = static_cast<int>(i) + 1;
    if (!ctx->needs(input)) continue;
    const auto& [shape, dtype] = weights[i];
    const Tensor gradient = Empty(shape, dtype, x.device());
    const bool out_in = layout == LinearLayout::kOutIn;
    products.push_back(
        {Transposed(out_in ? outs[i] : ins[i]), out_in ? ins[i] : outs[i], gradient});
    ctx->set(input, gradient);
  }
  SideBySide(products);
}

}  // namespace

Tensor GroupedLinear(const Tensor& given, const std::vector<int64_t>& counts,
                     const std::vector<Tensor>& weights, LinearLayout layout) {
  const Tensor x = ForProduct(given);
  Check(x, counts, weights, layout);
  const Tensor y = Multiply(x.Detach(), counts, weights, layout, /*back=*/false);
  std::vector<Tensor> inputs = {x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  if (!AnyRequiresGrad(inputs)) return y;
  std::vector<SavedTensor> saved;
  std::vector<std::pair<Shape, DType>> gradients;
  std::vector<int> numbers;
  bool trains = false;
  for (const Tensor& weight : weights) {
    saved.emplace_back(weight);
    gradients.emplace_back(weight.shape(), IsLeaf(weight) ? GradDType(weight) : weight.dtype());
    numbers.push_back(static_cast<int>(numbers.size()) + 1);
    trains = trains || RequiresGrad(weight);
  }
  GradFn input_backward = [saved = std::move(saved), counts, layout](GradContext& ctx) {
    if (!ctx.needs(0)) return;
    std::vector<Tensor> whole;
    for (const SavedTensor& weight : saved) whole.push_back(weight.Unpack());
    ctx.set(0, Multiply(Contiguous(ctx.grad()), counts, whole, layout, /*back=*/true));
  };
  GradFn weight_backward = [x = SavedTensor(trains ? x : Tensor()), counts, layout,
                            gradients = std::move(gradients)](GradContext& ctx) {
    const NoGrad no_grad;
    SetWeightGradients(Contiguous(ctx.grad()), x.Unpack(), counts, gradients, layout, &ctx);
  };
  RecordSplit(kName, inputs, {y}, std::move(input_backward), numbers, std::move(weight_backward));
  return y;
}

}  // namespace tessera
