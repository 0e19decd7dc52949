// SPDX-License-Identifier: Apache-2.0
// SwiGLU of a row of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_SWIGLU_SWIGLU_ROWS_H_
#define TESSERA_OPS_SWIGLU_SWIGLU_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

struct SwiGluRows {
  // Everything is written with "=".
  void (*forward)(RowType type, const void* gate, const void* up, void* out, int64_t n);
  void (*backward)(RowType type, const void* grad, const void* gate, const void* up, void* d_gate,
                   void* d_up, int64_t n);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const SwiGluRows kSwiGluRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_SWIGLU_SWIGLU_ROWS_H_
