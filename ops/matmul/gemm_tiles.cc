// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/gemm_tiles.h"

#include "core/cpu/every_isa.h"
#include "core/cpu_amx.h"
#include "core/cpu_isa.h"
#include "ops/matmul/gemm_kernel.h"

namespace tessera {

const GemmKernels<float>& SelectGemmPairKernels() {
#if defined(__x86_64__)
  constexpr IsaTable<const GemmKernels<float>> kKernels{TESSERA_FOR_EVERY_ISA(kGemmFloat), nullptr,
                                                        &avx512bf16::kGemmPairs};
#else
  constexpr IsaTable<const GemmKernels<float>> kKernels{TESSERA_FOR_EVERY_ISA(kGemmFloat)};
#endif
  const GemmKernels<float>* const instead = InsteadOfGemmPairKernels();
  return instead != nullptr ? *instead : *kKernels.Select();
}

const GemmKernels<float>*& InsteadOfGemmPairKernels() {
#if defined(__x86_64__)
  static const GemmKernels<float>* instead = ActiveAmx() ? &amx::kGemmPairs : nullptr;
#else
  static const GemmKernels<float>* instead = nullptr;
#endif
  return instead;
}

}  // namespace tessera
