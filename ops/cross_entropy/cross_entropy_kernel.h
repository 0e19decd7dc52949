// SPDX-License-Identifier: Apache-2.0
// What the cross-entropy kernels are given. Logits are rows of adjacent elements, `stride` from one
// row to the next; of `columns` in a row, `vocab` are in use.
#ifndef TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_KERNEL_H_
#define TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

// Per row, in AccumulateDType(dtype), written with "=": the maximum, the sum of exp(x - maximum),
// the (weighted) sum of the logits where it is asked for, and the target's logit, 0 where another
// rank has it.
struct CrossEntropyStatsArgs {
  DType dtype;
  int64_t rows;
  int64_t vocab;
  int64_t stride;
  int64_t vocab_begin;
  const void* logits;
  const int64_t* targets;
  const float* class_weights;  // of logit_sum; or nullptr
  void* max;
  void* sum_exp;
  void* logit_sum;  // or nullptr
  void* target_logit;
};

// dx = row_scale[i] * (q_total[i] softmax - q), with the row's lse. Columns from vocab on get zero,
// what lies between rows is not written.
struct CrossEntropyGradArgs {
  DType dtype;
  int64_t rows;
  int64_t vocab;
  int64_t columns;
  int64_t stride;
  int64_t vocab_begin;
  const void* logits;
  const int64_t* targets;
  const float* class_weights;  // or nullptr
  const void* lse;             // [rows]
  const void* on_target;       // [rows]: weight of the target, times the row's gradient
  const void* on_all;          // [rows]: weight of every class (times its class weight), likewise
  const void* on_softmax;      // [rows]: sum of both over all classes, likewise
  void* dx;                    // "=", same layout as logits; may be logits
};

inline KernelWork WorkOf(const CrossEntropyStatsArgs& args) {
  return {.bytes = BytesOfElements(args.dtype, args.rows * args.vocab)};
}
inline KernelWork WorkOf(const CrossEntropyGradArgs& args) {
  return {.bytes = 2 * BytesOfElements(args.dtype, args.rows * args.vocab)};
}

inline KernelTable<CrossEntropyStatsArgs> cross_entropy_stats{"cross_entropy"};
inline KernelTable<CrossEntropyGradArgs> cross_entropy_grad{"cross_entropy gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_KERNEL_H_
