// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy/linear_cross_entropy.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "autograd/saved_tensor.h"
#include "ops/cast/cast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

constexpr char kName[] = "linear_cross_entropy";

// The loss summed over rows, and its gradients, where asked for.
struct Chunked {
  Tensor loss;
  Tensor dh;
  Tensor dweight;
};

// h [N, C], targets [N]; off the tape.
Chunked Compute(const Tensor& h, const Tensor& weight, const Tensor& targets,
                const CrossEntropyOptions& options, int64_t chunk_rows, bool wants_dh,
                bool wants_dweight, DType dweight_dtype) {
  const bool wants_grad = wants_dh || wants_dweight;
  // A tape of its own for every chunk, which no hook of the outer one sees.
  const SavedTensorScope no_hooks(nullptr);
  const NoGrad tape(/*enabled=*/wants_grad);
  Chunked result;
  if (wants_dh) result.dh = Empty(h.shape(), h.dtype(), h.device());
  Tensor leaf = weight.Detach();
  if (wants_dweight) leaf = RequireGrad(leaf, dweight_dtype);
  // A chunk at least, of which there may be no rows.
  for (int64_t begin = 0; begin == 0 || begin < h.size(0); begin += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, h.size(0) - begin);
    Tensor part = Slice(h, 0, begin, rows).Detach();
    if (wants_dh) part = RequireGrad(part, part.dtype());
    const Tensor logits =
        Linear(part, leaf, Tensor(), LinearLayout::kOutIn, {.outputs = options.tree});
    const Tensor loss = CrossEntropy(logits, Slice(targets, 0, begin, rows), options);
    if (wants_grad) Backward(loss);
    if (wants_dh) CopyInto(Slice(result.dh, 0, begin, rows), Grad(part));
    if (result.loss.defined()) {
      AddInto(result.loss, loss.Detach());
    } else {
      result.loss = loss.Detach();
    }
  }
  if (wants_dweight) result.dweight = Grad(leaf);
  return result;
}

Tensor Times(const Tensor& t, const Tensor& factor) { return Cast(Mul(t, factor), t.dtype()); }

}  // namespace

Tensor LinearCrossEntropy(const Tensor& h, const Tensor& weight, const Tensor& targets,
                          const CrossEntropyOptions& options, int64_t chunk_rows) {
  const bool whole = options.group == nullptr || options.group->size() == 1;
  TESSERA_CHECK(h.ndim() >= 1 && targets.dtype() == DType::kInt64 &&
                    targets.shape() == Shape(h.shape().begin(), h.shape().end() - 1),
                kName, h, " and targets ", targets,
                ": targets must be int64, with the shape of what is fed but for its last dim");
  TESSERA_CHECK(chunk_rows > 0, kName, chunk_rows, " rows at a time");
  TESSERA_CHECK(
      options.reduction != LossReduction::kNone && whole && !options.class_weights.defined(), kName,
      "takes no class weights, no sharded vocabulary, and gives no row's loss");
  CrossEntropyOptions chunk = options;
  chunk.reduction = LossReduction::kSum;
  chunk.overwrite_logits = true;

  const bool wants_grad = AnyRequiresGrad({h, weight});
  Chunked result;
  Tensor divisor;  // of kMean
  {
    const NoGrad no_grad;
    const Tensor rows = Reshape(h, {targets.numel(), h.size(-1)});
    const Tensor ids = Reshape(targets.ContiguousCopy(), {targets.numel()});
    result = Compute(rows, weight, ids, chunk, chunk_rows, wants_grad && RequiresGrad(h),
                     wants_grad && RequiresGrad(weight),
                     RequiresGrad(weight) && IsLeaf(weight) ? GradDType(weight) : weight.dtype());
    if (options.reduction == LossReduction::kMean) {
      const Tensor counts =
          Compare(ids, static_cast<double>(options.ignore_index), Comparison::kNotEqual);
      divisor = Sum(Cast(counts, result.loss.dtype()));
      result.loss = Div(result.loss, divisor);
    }
  }
  if (wants_grad) {
    Record(kName, {h, weight}, {result.loss},
           [dh = SavedTensor(result.dh), dweight = result.dweight, divisor,
            shape = h.shape()](GradContext& ctx) {
             Tensor factor = ctx.grad();
             // Where no row counts the mean is NaN, and its gradient 0, as CrossEntropy's.
             if (divisor.defined()) {
               const Tensor none = Compare(divisor, 0.0, Comparison::kEqual);
               factor = Div(factor, Where(none, 1.0, divisor));
             }
             if (ctx.needs(0)) ctx.set(0, Reshape(Times(dh.Unpack(), factor), shape));
             if (ctx.needs(1)) ctx.set(1, Times(dweight, factor));
           });
  }
  return result.loss;
}

}  // namespace tessera
