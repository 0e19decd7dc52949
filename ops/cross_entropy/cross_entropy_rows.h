// SPDX-License-Identifier: Apache-2.0
// Cross-entropy's row functions, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_H_
#define TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

struct LogitsStats {
  float max;
  float sum_exp;       // sum of exp(x - max)
  float weighted_sum;  // sum of x, or of weights * x
};

// The functions of one instruction set.
struct CrossEntropyRows {
  // `weights` may be nullptr. n >= 1.
  LogitsStats (*stats)(RowType type, const void* x, const float* weights, int64_t n);
  // dx = scale * exp(x - lse) - uniform * (weights or 1), "="; dx may be x itself.
  void (*gradient)(RowType type, const void* x, const float* weights, int64_t n, float lse,
                   float scale, float uniform, void* dx);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const CrossEntropyRows kCrossEntropyRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_H_
