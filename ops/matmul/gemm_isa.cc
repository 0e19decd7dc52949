// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set.
#include "core/cpu/simd.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_pack.h"
#include "ops/matmul/gemm_rows.h"
#include "ops/matmul/gemm_tile.h"
#include "ops/matmul/gemm_vector.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename E>
void Skinny(int64_t rows, int64_t depth, const E* a, const GemmView& b, int64_t width, E* sums) {
  if constexpr (sizeof(E) == sizeof(float)) {
    if (b.width_stride != 1) return SkinnyAlong(rows, depth, a, b, width, sums);
  }
  SkinnyAcross(rows, depth, a, b, width, sums);
}

template <typename E>
constexpr GemmKernels<E> MakeKernels() {
  constexpr int64_t kPanelB = kTileVectors * VectorOf<E>::kWidth;
  GemmKernels<E> kernels = {kTileRows,
                            kPanelB,
                            2,
                            1,
                            Pack<E, kTileRows>,
                            Pack<E, kPanelB>,
                            Tile<E, Products>,
                            Skinny<E>,
                            FinishRow<E>,
                            LoadRow<E>,
                            StoreRow<E>};
  if constexpr (sizeof(E) == sizeof(float)) kernels.rows_tile = RowsTile<>;
  return kernels;
}

}  // namespace

const GemmKernels<float> kGemmFloat = MakeKernels<float>();
const GemmKernels<double> kGemmDouble = MakeKernels<double>();

}  // namespace tessera::TESSERA_ISA
