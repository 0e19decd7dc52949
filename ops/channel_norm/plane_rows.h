// SPDX-License-Identifier: Apache-2.0
// One plane, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_CHANNEL_NORM_PLANE_ROWS_H_
#define TESSERA_OPS_CHANNEL_NORM_PLANE_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

struct PlaneAffineRow {
  RowType type;
  int64_t n;
  const void* z;  // or nullptr
  float a;
  const void* x;  // or nullptr
  float b;
  float center;
  float d;
  void* out;  // "="
};

// The functions of one instruction set.
struct PlaneRows {
  void (*moments)(RowType type, int64_t n, const void* x, float* mean, float* squares);
  void (*sums)(RowType type, int64_t n, const void* x, const void* z, float center, float* sum,
               float* product);
  void (*affine)(const PlaneAffineRow& row);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const PlaneRows kPlaneRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_CHANNEL_NORM_PLANE_ROWS_H_
