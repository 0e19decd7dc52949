// SPDX-License-Identifier: Apache-2.0
// Softmax of one row, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_SOFTMAX_SOFTMAX_ROWS_H_
#define TESSERA_OPS_SOFTMAX_SOFTMAX_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

struct SoftmaxRows {
  // y = softmax(x), or its logarithm; "=". n >= 1.
  void (*forward)(RowType type, bool log, const void* x, void* y, int64_t n);
  // dx from the result y and its gradient dy; "=".
  void (*backward)(RowType type, bool log, const void* y, const void* dy, void* dx, int64_t n);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const SoftmaxRows kSoftmaxRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_SOFTMAX_SOFTMAX_ROWS_H_
