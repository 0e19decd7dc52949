// SPDX-License-Identifier: Apache-2.0
// Dropout of a row of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_DROPOUT_DROPOUT_ROWS_H_
#define TESSERA_OPS_DROPOUT_DROPOUT_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera {

enum class DropoutType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64 };

// out[i] = x[i] * scale where element index + i of the key's stream is >= p, else 0; "=".
struct DropoutRow {
  DropoutType type;
  uint64_t key_hi;
  uint64_t key_lo;
  uint64_t index;
  float p;
  double scale;
  int64_t n;
  const void* x;
  void* out;
};

TESSERA_DECLARE_FOR_EVERY_ISA(void DropRow(const DropoutRow& row);)

}  // namespace tessera

#endif  // TESSERA_OPS_DROPOUT_DROPOUT_ROWS_H_
