// SPDX-License-Identifier: Apache-2.0
#include "ops/loss/loss.h"

#include <cmath>
#include <utility>

#include "autograd/autograd.h"
#include "ops/cast/autocast.h"
#include "ops/elementwise/elementwise.h"
#include "ops/index/index.h"
#include "ops/loss/loss_kernel.h"
#include "ops/reduction/sum.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

// Losses are summed and divided, or neither.
struct Reduction {
  bool sums = true;
  double divisor = 1;
};

Reduction ReductionOf(LossReduction reduction, int64_t count) {
  switch (reduction) {
    case LossReduction::kNone:
      return {.sums = false};
    case LossReduction::kSum:
      return {};
    case LossReduction::kMean:
      return {.divisor = static_cast<double>(count)};
  }
  return {};
}

Tensor Reduce(const Tensor& losses, const Reduction& reduction) {
  if (!reduction.sums) return losses;
  const Tensor sum = Sum(losses);
  return reduction.divisor == 1 ? sum : Div(sum, reduction.divisor);
}

using Pair = std::pair<Tensor, Tensor>;

// Both in one dtype.
Pair Checked(const char* name, const Tensor& x, const Tensor& target) {
  TESSERA_CHECK(IsFloating(x.dtype()) && IsFloating(target.dtype()) &&
                    x.shape() == target.shape() && x.device() == target.device(),
                name, x, " and target ", target,
                ": one shape, device and floating dtypes are needed");
  Pair pair{ForSum(x), ForSum(target)};
  const DType a = pair.first.dtype();
  const DType b = pair.second.dtype();
  if (a == b) return pair;
  const bool wide = a == DType::kFloat64 || b == DType::kFloat64;
  const DType dtype = wide ? DType::kFloat64 : DType::kFloat32;
  return {Cast(pair.first, dtype), Cast(pair.second, dtype)};
}

struct Formula {
  const char* name;
  PairLoss loss;
  double parameter = 0;
};

// `grad` is that of each loss, or one for all of them.
Tensor GradOf(const Formula& formula, bool by_target, const Tensor& grad, const Tensor& x,
              const Tensor& target) {
  Tensor out = Empty(x.shape(), x.dtype(), x.device());
  if (out.numel() == 0) return out;
  const Tensor g = grad.ContiguousCopy();
  loss_grad_kernel.Launch(x.device(), {.loss = formula.loss,
                                       .parameter = formula.parameter,
                                       .dtype = x.dtype(),
                                       .count = x.numel(),
                                       .by_target = by_target,
                                       .grad = g.raw_data(),
                                       .grad_repeats = g.numel() == 1,
                                       .x = x.raw_data(),
                                       .target = target.raw_data(),
                                       .out = out.raw_data()});
  return out;
}

Tensor ValuesOf(const Formula& formula, const Tensor& x, const Tensor& target) {
  Tensor out = Empty(x.shape(), AccumulateDType(x.dtype()), x.device());
  if (out.numel() == 0) return out;
  loss_kernel.Launch(x.device(), {.loss = formula.loss,
                                  .parameter = formula.parameter,
                                  .dtype = x.dtype(),
                                  .count = x.numel(),
                                  .x = x.raw_data(),
                                  .target = target.raw_data(),
                                  .out = out.raw_data()});
  return out;
}

// One node of the tape for the losses and their reduction.
Tensor LossOfPairs(const Formula& formula, const Tensor& given, const Tensor& given_target,
                   const Reduction& reduction) {
  const auto [a, b] = Checked(formula.name, given, given_target);
  const bool takes_part = AnyRequiresGrad({a, b});
  Tensor loss;
  Tensor x;
  Tensor target;
  {
    const NoGrad no_grad;
    x = a.ContiguousCopy();
    target = b.ContiguousCopy();
    loss = Reduce(ValuesOf(formula, x, target), reduction);
  }
  if (!takes_part) return loss;
  Record(formula.name, {a, b}, {loss},
         [formula, reduction, x_saved = SavedTensor(x),
          target_saved = SavedTensor(target)](GradContext& ctx) {
           const Tensor at = x_saved.Unpack();
           const Tensor to = target_saved.Unpack();
           const Tensor grad =
               reduction.divisor == 1 ? ctx.grad() : Div(ctx.grad(), reduction.divisor);
           if (ctx.needs(0)) ctx.set(0, GradOf(formula, false, grad, at, to));
           if (ctx.needs(1)) ctx.set(1, GradOf(formula, true, grad, at, to));
         });
  return loss;
}

Tensor Wide(const Tensor& x) { return Cast(x, AccumulateDType(x.dtype())); }

// -(p t log s(x) + (1 - t) log(1 - s(x))) by log s(x) = -log(1 + e^-x).
Tensor WeightedLogits(const Tensor& x, const Tensor& target, const Tensor& pos_weight) {
  const Tensor scale = Affine(Mul(Affine(pos_weight, 1, -1), target), 1, 1);  // 1 + (p - 1) t
  return Add(Mul(Sub(1.0, target), x), Mul(scale, Softplus(Neg(x))));
}

// A weight beside losses of x, off the tape.
Tensor WeightFor(const char* name, const Tensor& weight, const Tensor& x) {
  TESSERA_CHECK(IsFloating(weight.dtype()) && weight.device() == x.device() &&
                    BroadcastShapes(weight.shape(), x.shape(), name) == x.shape(),
                name, "weight ", weight, " for ", x);
  return Cast(weight.Detach(), AccumulateDType(x.dtype()));
}

Tensor Cosine(const char* name, const Tensor& given_a, const Tensor& given_b, int dim,
              double epsilon) {
  const auto [a, b] = Checked(name, given_a, given_b);
  const Tensor x = Wide(a);
  const Tensor y = Wide(b);
  // Where a length is clamped, nothing flows through it.
  const auto inverse_length = [&](const Tensor& v) {
    return Rsqrt(Clamp(Sum(Square(v), {dim}), epsilon * epsilon, HUGE_VAL));
  };
  return Mul(Sum(Mul(x, y), {dim}), Mul(inverse_length(x), inverse_length(y)));
}

void CheckSigns(const Tensor& labels) {
  for (const double label : labels.ToVector<double>()) {
    TESSERA_CHECK(label == 1 || label == -1, "cosine_embedding_loss", "label ", label,
                  ", which is neither 1 nor -1");
  }
}

}  // namespace

Tensor MseLoss(const Tensor& x, const Tensor& target, const LossOptions& options) {
  return LossOfPairs({"mse_loss", PairLoss::kSquare}, x, target,
                     ReductionOf(options.reduction, x.numel()));
}

Tensor L1Loss(const Tensor& x, const Tensor& target, const LossOptions& options) {
  return LossOfPairs({"l1_loss", PairLoss::kAbs}, x, target,
                     ReductionOf(options.reduction, x.numel()));
}

Tensor SmoothL1Loss(const Tensor& x, const Tensor& target, const SmoothL1Options& options) {
  TESSERA_CHECK(options.beta >= 0, "smooth_l1_loss", "beta is ", options.beta);
  if (options.beta == 0) return L1Loss(x, target, {options.reduction});
  const Tensor huber = LossOfPairs({"smooth_l1_loss", PairLoss::kHuber, options.beta}, x, target,
                                   ReductionOf(options.reduction, x.numel()));
  return options.beta == 1 ? huber : Div(huber, options.beta);
}

Tensor HuberLoss(const Tensor& x, const Tensor& target, const HuberOptions& options) {
  TESSERA_CHECK(options.delta > 0, "huber_loss", "delta is ", options.delta);
  return LossOfPairs({"huber_loss", PairLoss::kHuber, options.delta}, x, target,
                     ReductionOf(options.reduction, x.numel()));
}

Tensor BceWithLogits(const Tensor& x, const Tensor& target, const BceOptions& options) {
  constexpr const char* kName = "bce_with_logits";
  const Reduction reduction = ReductionOf(options.reduction, x.numel());
  const Formula formula{kName, PairLoss::kLogits};
  if (!options.weight.defined() && !options.pos_weight.defined()) {
    return LossOfPairs(formula, x, target, reduction);
  }
  Tensor losses;
  if (options.pos_weight.defined()) {
    const auto [a, b] = Checked(kName, x, target);
    losses = WeightedLogits(Wide(a), Wide(b), WeightFor(kName, options.pos_weight, a));
  } else {
    losses = LossOfPairs(formula, x, target, {.sums = false});
  }
  if (options.weight.defined()) losses = Mul(losses, WeightFor(kName, options.weight, losses));
  return Reduce(losses, reduction);
}

Tensor KlDivergence(const Tensor& x, const Tensor& target, const DivergenceOptions& options) {
  Reduction reduction;
  switch (options.reduction) {
    case DivergenceReduction::kNone:
      reduction.sums = false;
      break;
    case DivergenceReduction::kSum:
      break;
    case DivergenceReduction::kMean:
      reduction.divisor = static_cast<double>(x.numel());
      break;
    case DivergenceReduction::kBatchMean:
      TESSERA_CHECK(x.ndim() > 0, "kl_divergence", "the batch mean of ", x);
      reduction.divisor = static_cast<double>(x.size(0));
      break;
  }
  const PairLoss loss = options.log_target ? PairLoss::kLogDivergence : PairLoss::kDivergence;
  return LossOfPairs({"kl_divergence", loss}, x, target, reduction);
}

Tensor NllLoss(const Tensor& given, const Tensor& target, const NllOptions& options) {
  const Tensor x = ForSum(given);
  TESSERA_CHECK(x.ndim() >= 1 && IsFloating(x.dtype()) && target.dtype() == DType::kInt64 &&
                    target.device() == x.device() &&
                    target.shape() == Shape(x.shape().begin(), x.shape().end() - 1),
                "nll_loss", "log-probabilities ", x, " and targets ", target);
  const Tensor counts =
      Compare(target, static_cast<double>(options.ignore_index), Comparison::kNotEqual);
  const Tensor classes = Where(counts, target, 0.0);
  Tensor weights = Where(counts, 1.0, 0.0, AccumulateDType(x.dtype()));
  if (options.class_weights.defined()) {
    TESSERA_CHECK(options.class_weights.shape() == Shape{x.size(-1)}, "nll_loss", "class weights ",
                  options.class_weights, " for ", x);
    const Tensor each = WeightFor("nll_loss", options.class_weights, x);
    weights = Mul(weights, IndexSelect(each, 0, classes));
  }
  const Tensor picked = Squeeze(Gather(x, -1, Unsqueeze(classes, target.ndim())), -1);
  // An ignored row counts nothing even where it is infinite.
  const Tensor losses = Where(counts, Neg(Mul(Wide(picked), weights)), 0.0);
  if (options.reduction != LossReduction::kMean) {
    return Reduce(losses, ReductionOf(options.reduction, losses.numel()));
  }
  return Div(Sum(losses), Sum(weights));
}

Tensor CosineSimilarity(const Tensor& a, const Tensor& b, int dim, double epsilon) {
  const Tensor cosine = Cosine("cosine_similarity", a, b, dim, epsilon);
  return IsHalf(a.dtype()) && a.dtype() == b.dtype() ? Cast(cosine, ForSum(a).dtype()) : cosine;
}

Tensor CosineEmbeddingLoss(const Tensor& a, const Tensor& b, const Tensor& labels,
                           const CosineEmbeddingOptions& options) {
  const Tensor cosine = Cosine("cosine_embedding_loss", a, b, -1, 1e-8);
  TESSERA_CHECK(labels.shape() == cosine.shape() && labels.device() == cosine.device(),
                "cosine_embedding_loss", "labels ", labels, " for ", a);
  if (labels.device().is_cpu()) CheckSigns(labels);
  const Tensor alike = Compare(labels, 0.0, Comparison::kGreater);
  const Tensor losses = Where(alike, Sub(1.0, cosine), Relu(Sub(cosine, options.margin)));
  return Reduce(losses, ReductionOf(options.reduction, losses.numel()));
}

}  // namespace tessera
