// SPDX-License-Identifier: Apache-2.0
#include "ops/norm/norm.h"

#include <algorithm>
#include <vector>

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/norm/norm_kernel.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

struct Spec {
  const char* name;
  bool centered;
  double eps;
  double weight_offset = 0;
  std::optional<TokenTree> tree = std::nullopt;
};

struct Normed {
  Tensor sum;  // undefined without residual
  Tensor y;
  Tensor mean;
  Tensor rstd;
};

const void* DataOrNull(const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; }

int64_t RowsOf(const Tensor& x) { return x.numel() / std::max<int64_t>(x.size(-1), 1); }

Normed LaunchForward(const Spec& spec, const Tensor& x, const Tensor& residual,
                     const Tensor& weight, const Tensor& bias) {
  const int64_t rows = RowsOf(x);
  const DType stats = AccumulateDType(x.dtype());
  Normed out{residual.defined() ? Empty(x.shape(), x.dtype(), x.device()) : Tensor(),
             Empty(x.shape(), x.dtype(), x.device()), Empty({rows}, stats, x.device()),
             Empty({rows}, stats, x.device())};
  if (x.numel() == 0) return out;
  const Tensor xc = x.ContiguousCopy();
  const Tensor rc = residual.defined() ? residual.ContiguousCopy() : Tensor();
  norm_forward.Launch(x.device(), {.dtype = x.dtype(),
                                   .centered = spec.centered,
                                   .rows = rows,
                                   .n = x.size(-1),
                                   .eps = spec.eps,
                                   .x = xc.raw_data(),
                                   .residual = DataOrNull(rc),
                                   .weight = DataOrNull(weight),
                                   .weight_offset = spec.weight_offset,
                                   .bias = DataOrNull(bias),
                                   .sum = const_cast<void*>(DataOrNull(out.sum)),
                                   .y = out.y.raw_data(),
                                   .mean = out.mean.raw_data(),
                                   .rstd = out.rstd.raw_data()});
  return out;
}

struct NormGrads {
  Tensor dx;
  Tensor dweight;
  Tensor dbias;
};

NormChunks ChunksOf(const Spec& spec, const Tensor& x) {
  const int64_t rows = RowsOf(x);
  NormChunks chunks{.sequences = 1, .length = rows, .runs = 1, .begin = {0, rows}, .first = {0}};
  if (spec.tree.has_value()) {
    const Group& group = spec.tree->group;
    const int64_t tokens = x.size(1);
    chunks.sequences = x.size(0);
    chunks.length = rows / std::max<int64_t>(x.size(0), 1);
    chunks.runs = kSumLeaves / (group == nullptr ? 1 : group->size());
    for (int i = 0; i < chunks.runs; ++i) {
      const Share run = EvenShare(tokens, chunks.runs, i);
      chunks.begin[i + 1] = (run.begin + run.count) * chunks.length / std::max<int64_t>(tokens, 1);
    }
  }
  for (int i = 0; i < chunks.runs; ++i) {
    const int64_t of_sequence = chunks.begin[i + 1] - chunks.begin[i];
    chunks.first[i + 1] =
        chunks.first[i] + chunks.sequences * ((of_sequence + kNormGradRows - 1) / kNormGradRows);
  }
  return chunks;
}

// Of partial results [chunks, n].
Tensor SumOfChunks(const Spec& spec, const NormChunks& chunks, const Tensor& partial) {
  const Shape row = {partial.size(1)};
  if (!spec.tree.has_value()) return SumTo(partial, row);
  std::vector<Tensor> terms;
  for (int i = 0; i < chunks.runs; ++i) {
    const int64_t count = chunks.first[i + 1] - chunks.first[i];
    terms.push_back(count == 0 ? Tensor() : SumTo(Slice(partial, 0, chunks.first[i], count), row));
  }
  Tensor sum = SumOfLeaves(terms);
  if (!sum.defined()) sum = Full(row, -0.0, partial.dtype(), partial.device());
  SumInTree(sum, spec.tree->group);
  return sum;
}

NormGrads LaunchBackward(const Spec& spec, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                         const Tensor& dsum, bool wants_dx, bool wants_dweight, bool wants_dbias) {
  const int64_t rows = RowsOf(x);
  const int64_t n = x.size(-1);
  const NormChunks chunks = ChunksOf(spec, x);
  const DType wide = AccumulateDType(x.dtype());
  NormGrads grads;
  if (wants_dx) grads.dx = Empty(x.shape(), x.dtype(), x.device());
  const Tensor dweight = wants_dweight ? Empty({chunks.count(), n}, wide, x.device()) : Tensor();
  const Tensor dbias = wants_dbias ? Empty({chunks.count(), n}, wide, x.device()) : Tensor();
  if (x.numel() > 0) {
    const Tensor xc = x.ContiguousCopy();
    const Tensor dyc = dy.ContiguousCopy();
    const Tensor dsc = dsum.defined() ? dsum.ContiguousCopy() : Tensor();
    norm_backward.Launch(x.device(), {.dtype = x.dtype(),
                                      .centered = spec.centered,
                                      .rows = rows,
                                      .n = n,
                                      .x = xc.raw_data(),
                                      .weight = DataOrNull(weight),
                                      .weight_offset = spec.weight_offset,
                                      .dy = dyc.raw_data(),
                                      .dsum = DataOrNull(dsc),
                                      .mean = mean.raw_data(),
                                      .rstd = rstd.raw_data(),
                                      .dx = const_cast<void*>(DataOrNull(grads.dx)),
                                      .dweight_partial = const_cast<void*>(DataOrNull(dweight)),
                                      .dbias_partial = const_cast<void*>(DataOrNull(dbias)),
                                      .chunks = chunks});
  }
  const NoGrad no_grad;
  if (wants_dweight) grads.dweight = SumOfChunks(spec, chunks, dweight);
  if (wants_dbias) grads.dbias = SumOfChunks(spec, chunks, dbias);
  return grads;
}

void Check(const Spec& spec, const Tensor& x, const Tensor& residual, const Tensor& weight,
           const Tensor& bias) {
  TESSERA_CHECK(x.ndim() >= (spec.tree.has_value() ? 3 : 1) && IsFloating(x.dtype()), spec.name,
                "cannot normalise ", x, ": a floating dtype and a dim of features are needed");
  TESSERA_CHECK(
      !residual.defined() || (residual.shape() == x.shape() && residual.dtype() == x.dtype()),
      spec.name, "residual ", residual, " for ", x, ": one shape and dtype are needed");
  for (const Tensor& p : {weight, bias}) {
    TESSERA_CHECK(!p.defined() || (p.shape() == Shape{x.size(-1)} && p.dtype() == x.dtype() &&
                                   p.device() == x.device()),
                  spec.name, "parameter ", p, " for ", x,
                  ": it must have the size, dtype and device of the last dim");
  }
}

// Inputs of the node: x, residual, weight, bias. Outputs: y and, where asked for, the sum.
ResidualNorm Norm(const Spec& spec, const Tensor& given_x, const Tensor& given_residual,
                  bool wants_sum, const Tensor& given_weight, const Tensor& given_bias) {
  const Tensor x = ForSum(given_x);
  const Tensor residual = ForSum(given_residual);
  const auto in_one_piece = [](const Tensor& p) { return p.defined() ? Contiguous(p) : p; };
  const Tensor weight = in_one_piece(given_weight);
  const Tensor bias = in_one_piece(given_bias);
  Check(spec, x, residual, weight, bias);
  Normed out = LaunchForward(spec, x, residual, weight, bias);
  if (wants_sum && !residual.defined()) out.sum = x.Detach();
  if (AnyRequiresGrad({x, residual, weight, bias})) {
    std::vector<Tensor> outputs = {out.y};
    if (wants_sum) outputs.push_back(out.sum);
    Record(spec.name, {x, residual, weight, bias}, outputs,
           [spec, wants_sum, x = SavedTensor(residual.defined() ? out.sum : x),
            weight = SavedTensor(weight), mean = SavedTensor(out.mean),
            rstd = SavedTensor(out.rstd)](GradContext& ctx) {
             const Tensor dsum = wants_sum ? ctx.grad(1) : Tensor();
             if (!ctx.grad(0).defined()) {  // only the sum was used
               if (ctx.needs(0)) ctx.set(0, dsum);
               if (ctx.needs(1)) ctx.set(1, dsum);
               ctx.set(2, Tensor());
               ctx.set(3, Tensor());
               return;
             }
             const NormGrads grads = LaunchBackward(
                 spec, x.Unpack(), weight.Unpack(), mean.Unpack(), rstd.Unpack(), ctx.grad(0), dsum,
                 ctx.needs(0) || ctx.needs(1), ctx.needs(2), ctx.needs(3));
             if (ctx.needs(0)) ctx.set(0, grads.dx);
             if (ctx.needs(1)) ctx.set(1, grads.dx);
             if (ctx.needs(2)) ctx.set(2, grads.dweight);
             if (ctx.needs(3)) ctx.set(3, grads.dbias);
           });
  }
  return {out.sum, out.y};
}

}  // namespace

Tensor LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                 const std::optional<TokenTree>& tree) {
  return Norm({"layer_norm", true, eps, 0, tree}, x, Tensor(), false, weight, bias).normed;
}

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps, double weight_offset,
               const std::optional<TokenTree>& tree) {
  return Norm({"rms_norm", false, eps, weight_offset, tree}, x, Tensor(), false, weight, Tensor())
      .normed;
}

ResidualNorm LayerNormResidual(const Tensor& x, const Tensor& residual, const Tensor& weight,
                               const Tensor& bias, double eps,
                               const std::optional<TokenTree>& tree) {
  return Norm({"layer_norm_residual", true, eps, 0, tree}, x, residual, true, weight, bias);
}

ResidualNorm RmsNormResidual(const Tensor& x, const Tensor& residual, const Tensor& weight,
                             double eps, double weight_offset,
                             const std::optional<TokenTree>& tree) {
  return Norm({"rms_norm_residual", false, eps, weight_offset, tree}, x, residual, true, weight,
              Tensor());
}

}  // namespace tessera
