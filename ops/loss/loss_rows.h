// SPDX-License-Identifier: Apache-2.0
// Losses of rows of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_LOSS_LOSS_ROWS_H_
#define TESSERA_OPS_LOSS_LOSS_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

// loss(x, t), with a parameter p where one is named.
enum class PairLoss : uint8_t {
  kSquare,         // (x - t)^2
  kAbs,            // |x - t|
  kHuber,          // d^2 / 2 where d = |x - t| <= p, else p (d - p / 2)
  kLogits,         // max(x, 0) - x t + log(1 + e^-|x|)
  kDivergence,     // t (log t - x), 0 where t is 0
  kLogDivergence,  // e^t (t - x)
};

// The functions of one instruction set.
struct LossRows {
  // out = loss(x, t).
  void (*values)(PairLoss loss, float parameter, RowType type, const void* x, const void* t,
                 float* out, int64_t n);
  // out = grad * the derivative by x, or by t. `grad` has one element if `repeats`.
  void (*gradient)(PairLoss loss, float parameter, bool by_target, RowType type, const float* grad,
                   bool repeats, const void* x, const void* t, void* out, int64_t n);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const LossRows kLossRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_LOSS_LOSS_ROWS_H_
