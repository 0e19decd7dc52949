// SPDX-License-Identifier: Apache-2.0
// What the normalisation kernels are given: contiguous matrices [rows, n].
#ifndef TESSERA_OPS_NORM_NORM_KERNEL_H_
#define TESSERA_OPS_NORM_NORM_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

struct NormArgs {
  DType dtype;
  bool centered;  // LayerNorm; otherwise RmsNorm
  int64_t rows;
  int64_t n;
  double eps;
  const void* x;
  const void* residual;  // or nullptr
  const void* weight;    // [n] or nullptr
  double weight_offset;  // is added to each weight
  const void* bias;      // [n] or nullptr
  void* sum;             // "=", with residual only
  void* y;               // "="
  void* mean;            // [rows], AccumulateDType(dtype), "="
  void* rstd;            // [rows], likewise
};

// Rows whose contributions to dweight and dbias are summed into one partial result.
inline constexpr int64_t kNormGradRows = 64;

// Of the gradients.
struct NormGradArgs {
  DType dtype;
  bool centered;
  int64_t rows;
  int64_t n;
  const void* x;
  const void* weight;
  double weight_offset;
  const void* dy;
  const void* dsum;  // or nullptr
  const void* mean;
  const void* rstd;
  void* dx;               // "=" or nullptr
  void* dweight_partial;  // [ceil(rows / kNormGradRows), n], AccumulateDType, "=", or nullptr
  void* dbias_partial;    // likewise
};

inline KernelTable<NormArgs> norm_forward{"norm"};
inline KernelTable<NormGradArgs> norm_backward{"norm gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_NORM_NORM_KERNEL_H_
