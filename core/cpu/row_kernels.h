// SPDX-License-Identifier: Apache-2.0
// What a CPU kernel needs to call row functions that were compiled once per instruction set.
//
//   const NormRows& rows = ForActiveIsa(TESSERA_FOR_EVERY_ISA(kNormRows));
//   rows.forward({RowTypeOf(dtype), ...});
#ifndef TESSERA_CORE_CPU_ROW_KERNELS_H_
#define TESSERA_CORE_CPU_ROW_KERNELS_H_

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"
#include "core/cpu_isa.h"
#include "core/dtype.h"

namespace tessera {

// The table of the instruction set in use; once per launch.
template <typename Rows, typename... Higher>
const Rows& ForActiveIsa(const Rows* lowest, const Higher*... higher) {
  return *IsaTable<const Rows>{lowest, higher...}.Select();
}

// float32, bfloat16 or float16 only.
inline RowType RowTypeOf(DType dtype) {
  return dtype == DType::kFloat32    ? RowType::kFloat32
         : dtype == DType::kBFloat16 ? RowType::kBFloat16
                                     : RowType::kFloat16;
}

}  // namespace tessera

#endif  // TESSERA_CORE_CPU_ROW_KERNELS_H_
