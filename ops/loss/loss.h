// SPDX-License-Identifier: Apache-2.0
// Losses of a prediction and a target, element by element and of pairs of vectors. Cross-entropy of
// classes is in ops/cross_entropy/cross_entropy.h; NllLoss takes its log-probabilities.
//
//   Tensor loss = MseLoss(net.Forward(x), y);                                    // a scalar
//   Tensor each = SmoothL1Loss(boxes_N4, targets_N4, {.reduction = LossReduction::kNone});
//   Tensor kl = KlDivergence(LogSoftmax(student, -1), Softmax(teacher, -1));
//
// Two tensors of the same shape and floating dtypes, computed in the wider one, at least in
// float32: losses and sums are float32 (float64 for float64), under autocast and of half precision,
// too; a CosineSimilarity has its operands' dtype. Shapes are not broadcast: a [N, 1] beside a [N]
// would be N^2 losses. Gradients flow to both. kMean divides by the number of elements (NllLoss: of
// rows that count). The names and definitions are PyTorch's. Shapes that differ throw Error.
#ifndef TESSERA_OPS_LOSS_LOSS_H_
#define TESSERA_OPS_LOSS_LOSS_H_

#include <cstdint>

#include "core/tensor.h"
#include "ops/cross_entropy/cross_entropy.h"

namespace tessera {

struct LossOptions {
  LossReduction reduction = LossReduction::kMean;
};

// (x - t)^2.
Tensor MseLoss(const Tensor& x, const Tensor& target, const LossOptions& options = {});
// |x - t|; its gradient is 0 where they are equal.
Tensor L1Loss(const Tensor& x, const Tensor& target, const LossOptions& options = {});

// Of SmoothL1Loss.
struct SmoothL1Options {
  LossReduction reduction = LossReduction::kMean;
  double beta = 1.0;  // >= 0; 0: L1Loss
};
// d^2 / (2 beta) where d = |x - t| is below beta, else d - beta / 2 (Girshick 2015).
Tensor SmoothL1Loss(const Tensor& x, const Tensor& target, const SmoothL1Options& options = {});

// Of HuberLoss.
struct HuberOptions {
  LossReduction reduction = LossReduction::kMean;
  double delta = 1.0;  // > 0
};
// d^2 / 2 where d = |x - t| is at most delta, else delta (d - delta / 2) (Huber 1964).
Tensor HuberLoss(const Tensor& x, const Tensor& target, const HuberOptions& options = {});

// Of BceWithLogits.
struct BceOptions {
  LossReduction reduction = LossReduction::kMean;
  Tensor weight = {};      // of each loss; broadcasts to x's shape
  Tensor pos_weight = {};  // of the positive part, likewise: [C] beside x [N, C]
};
// -(p t log s(x) + (1 - t) log(1 - s(x))), s the sigmoid, p `pos_weight`: of logits x, and targets
// in [0, 1]. Does not overflow. No gradients reach the weights.
Tensor BceWithLogits(const Tensor& x, const Tensor& target, const BceOptions& options = {});

// kBatchMean divides by the size of dim 0, which gives the divergence as it is defined.
enum class DivergenceReduction { kNone, kSum, kMean, kBatchMean };
struct DivergenceOptions {
  DivergenceReduction reduction = DivergenceReduction::kBatchMean;
  bool log_target = false;  // the target is given as logarithms, too
};
// t (log t - x), 0 where t is 0: of log-probabilities x and probabilities t (Kullback and Leibler
// 1951). With log_target a target of -inf gives NaN, as PyTorch's does.
Tensor KlDivergence(const Tensor& x, const Tensor& target, const DivergenceOptions& options = {});

// Of NllLoss.
struct NllOptions {
  LossReduction reduction = LossReduction::kMean;
  int64_t ignore_index = -100;
  Tensor class_weights = {};  // [C]; kMean divides by the sum of the weights then
};
// -w[t] x[t] of log-probabilities x [..., C] and int64 targets [...]. On the CPU a
// target outside of the classes throws Error.
Tensor NllLoss(const Tensor& x, const Tensor& target, const NllOptions& options = {});

// a b / (|a| |b|) along `dim`; lengths below `epsilon` count as epsilon.
Tensor CosineSimilarity(const Tensor& a, const Tensor& b, int dim = -1, double epsilon = 1e-8);

// Of CosineEmbeddingLoss.
struct CosineEmbeddingOptions {
  LossReduction reduction = LossReduction::kMean;
  double margin = 0.0;
};
// Of a, b [..., D] and labels [...] of 1 and -1: 1 - cos(a, b) where 1, else max(0, cos - margin).
// On the CPU another label throws Error; on the GPU one above 0 counts as 1, others as -1.
Tensor CosineEmbeddingLoss(const Tensor& a, const Tensor& b, const Tensor& labels,
                           const CosineEmbeddingOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_LOSS_LOSS_H_
