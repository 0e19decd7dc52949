// SPDX-License-Identifier: Apache-2.0
// Sums over rows of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_REDUCTION_REDUCTION_ROWS_H_
#define TESSERA_OPS_REDUCTION_REDUCTION_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

struct SumRows {
  // The sum of n adjacent elements, in a fixed order.
  float (*row)(RowType type, const void* x, int64_t n);
  // out[j] = sum over i < rows of x[i * stride + j], j < n; row by row.
  void (*columns)(RowType type, const void* x, int64_t stride, int64_t rows, int64_t n, float* out);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const SumRows kSumRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_REDUCTION_REDUCTION_ROWS_H_
