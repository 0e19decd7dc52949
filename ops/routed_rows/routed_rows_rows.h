// SPDX-License-Identifier: Apache-2.0
// One token's rows, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_ROWS_H_
#define TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

struct RoutedRowsRows {
  // out = sum over j < each of weights[j] * row place[j] of x, each of n elements; places below 0
  // are left out. weights nullptr: 1. "=".
  void (*combine)(RowType type, const void* x, const int64_t* place, const float* weights,
                  int64_t each, void* out, int64_t n);
  // to = weight * from. "=".
  void (*scale)(RowType type, const void* from, float weight, void* to, int64_t n);
  // The sum of a * b.
  float (*dot)(RowType type, const void* a, const void* b, int64_t n);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const RoutedRowsRows kRoutedRowsRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_ROUTED_ROWS_ROUTED_ROWS_ROWS_H_
