// SPDX-License-Identifier: Apache-2.0
// Normalisation of one row, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_NORM_NORM_ROWS_H_
#define TESSERA_OPS_NORM_NORM_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

struct NormRow {
  RowType type;
  bool centered;  // LayerNorm; otherwise RmsNorm
  int64_t n;
  float eps;
  const void* x;
  const void* residual;  // or nullptr
  const void* weight;    // or nullptr
  float weight_offset;   // is added to each weight
  const void* bias;      // or nullptr
  void* sum;             // x + residual, "="; nullptr without residual
  void* y;               // "="
  float* mean;           // written for centered
  float* rstd;
};

// A row of the gradients.
struct NormGradRow {
  RowType type;
  bool centered;
  int64_t n;
  const void* x;  // what was normalised (the sum, where fused)
  const void* weight;
  float weight_offset;
  const void* dy;
  const void* dsum;  // added to dx, or nullptr
  float mean;
  float rstd;
  void* dx;        // "="; nullptr: not wanted
  float* dweight;  // "+="; nullptr: not wanted
  float* dbias;    // "+="; nullptr: not wanted
};

// The functions of one instruction set.
struct NormRows {
  void (*forward)(const NormRow& row);
  void (*backward)(const NormGradRow& row);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const NormRows kNormRows;)

}  // namespace tessera

#endif  // TESSERA_OPS_NORM_NORM_ROWS_H_
