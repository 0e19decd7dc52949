// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/gemm_tiles.h"

#include "core/cpu_amx.h"
#include "core/cpu_isa.h"
#include "ops/matmul/gemm_kernel.h"

namespace tessera {

const GemmKernels<float>& SelectGemmPairKernels() {
  constexpr IsaTable<const GemmKernels<float>> kKernels{&baseline::kGemmFloat, &avx2::kGemmFloat,
                                                        &avx512::kGemmFloat, nullptr,
                                                        &avx512bf16::kGemmPairs};
  const GemmKernels<float>* const instead = InsteadOfGemmPairKernels();
  return instead != nullptr ? *instead : *kKernels.Select();
}

const GemmKernels<float>*& InsteadOfGemmPairKernels() {
  static const GemmKernels<float>* instead = ActiveAmx() ? &amx::kGemmPairs : nullptr;
  return instead;
}

}  // namespace tessera
