// SPDX-License-Identifier: Apache-2.0
// What a CPU kernel needs to call row functions that were compiled once per instruction set.
//
//   const NormRows& rows = ForActiveIsa(baseline::kNormRows, avx2::kNormRows, avx512::kNormRows);
//   rows.forward({RowTypeOf(dtype), ...});
#ifndef TESSERA_CORE_CPU_ROW_KERNELS_H_
#define TESSERA_CORE_CPU_ROW_KERNELS_H_

#include "core/cpu/row_type.h"
#include "core/cpu_isa.h"
#include "core/dtype.h"

namespace tessera {

// The table of the instruction set in use; once per launch.
template <typename Rows>
const Rows& ForActiveIsa(const Rows& baseline, const Rows& avx2, const Rows& avx512) {
  return *IsaTable<const Rows>{&baseline, &avx2, &avx512}.Select();
}

// float32, bfloat16 or float16 only.
inline RowType RowTypeOf(DType dtype) {
  return dtype == DType::kFloat32    ? RowType::kFloat32
         : dtype == DType::kBFloat16 ? RowType::kBFloat16
                                     : RowType::kFloat16;
}

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_ROW_KERNELS_H_
