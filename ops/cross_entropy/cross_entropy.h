// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of integer targets, over a whole or a sharded vocabulary.
//
//   Tensor loss = CrossEntropy(logits_NV, targets_N, {.reduction = LossReduction::kMean});
//
// loss_i = -sum_c q_c log softmax(logits_i)_c, where q is 1 - s on the target and s / V more on
// every class, with s the label smoothing (Szegedy et al. 2016), each class weighted where weights
// are given (as PyTorch's cross_entropy does). Rows whose target is `ignore_index` count nothing.
//
// logits [..., V] of a floating dtype, targets [...] int64. Losses and sums are float32 (float64
// for float64). The softmax is never stored: the backward pass computes it from the log-sum-exp,
// and with `overwrite_logits` writes the gradient over the logits, which must not be used
// otherwise.
//
// Vocabulary-parallel (Shoeybi et al. 2019): each rank of `group` holds columns [vocab_begin,
// vocab_begin + local size) of the logits; targets are global ids; the losses come out on every
// rank. Columns from `local_vocab` on are padding.
//
// Where every target is ignored, the mean is NaN and its gradient 0, as PyTorch's. Throws Error for
// wrong shapes, a label_smoothing outside of [0, 1], and (on the CPU) a target outside of the
// vocabulary, naming it.
#ifndef TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H_
#define TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H_

#include <cstdint>
#include <memory>

#include "core/communicator.h"
#include "core/tensor.h"
#include "ops/collective/sum_tree.h"

namespace tessera {

enum class LossReduction { kNone, kSum, kMean };

// What is averaged, left out, smoothed and weighted.
struct CrossEntropyOptions {
  // kMean divides by the number of rows that count (by the sum of their weights, with weights).
  LossReduction reduction = LossReduction::kMean;
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;  // s, in [0, 1]
  Tensor class_weights = {};     // [V] float32; not with a sharded vocabulary
  bool overwrite_logits = false;

  std::shared_ptr<Communicator> group = nullptr;  // nullptr: the vocabulary is whole
  int64_t vocab_begin = 0;
  int64_t local_vocab = -1;   // columns in use; -1: all
  int64_t global_vocab = -1;  // V; -1: local_vocab
  // In which order sums over the vocabulary are taken, of the columns in use; nullptr: as it comes.
  std::shared_ptr<const SumTree> tree = nullptr;
};

Tensor CrossEntropy(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_H_
