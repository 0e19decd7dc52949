// SPDX-License-Identifier: Apache-2.0
// What works with the packed tiles of matrix products (gemm_kernel.h) asks for here: the product
// itself, and convolutions, which pack other things.
#ifndef TESSERA_OPS_MATMUL_GEMM_TILES_H_
#define TESSERA_OPS_MATMUL_GEMM_TILES_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu_isa.h"
#include "core/dtype.h"
#include "ops/matmul/gemm_kernel.h"

namespace tessera {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The tiles of the instruction set in use, computed in E: float or double.
template <typename E>
const GemmKernels<E>& SelectGemmKernels();
template <>
inline const GemmKernels<float>& SelectGemmKernels<float>() {
  constexpr IsaTable<const GemmKernels<float>> kKernels{TESSERA_FOR_EVERY_ISA(kGemmFloat)};
  return *kKernels.Select();
}
template <>
inline const GemmKernels<double>& SelectGemmKernels<double>() {
  constexpr IsaTable<const GemmKernels<double>> kKernels{TESSERA_FOR_EVERY_ISA(kGemmDouble)};
  return *kKernels.Select();
}

// Those for views of kBFloat16Pairs.
const GemmKernels<float>& SelectGemmPairKernels();

// What it selects instead of the tiles of the instruction set in use: AMX's where they are asked
// for (core/cpu_amx.h), or what a test puts here; null: nothing. Not to be set while kernels run.
const GemmKernels<float>*& InsteadOfGemmPairKernels();

// The element type of a dtype.
inline GemmElement GemmElementOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return GemmElement::kBFloat16;
    case DType::kFloat16:
      return GemmElement::kFloat16;
    case DType::kFloat64:
      return GemmElement::kFloat64;
    default:
      return GemmElement::kFloat32;
  }
}

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_GEMM_TILES_H_
