// SPDX-License-Identifier: Apache-2.0
// From a RowType to the type of elements that core/cpu/simd.h loads and stores:
//
//   DispatchRow(type, [&](auto zero) __attribute__((always_inline)) {
//     using T = decltype(zero);                       // float, Bf16 or F16
//     Copy(static_cast<const T*>(x), n);
//   });
#ifndef TESSERA_CORE_CPU_ROW_DISPATCH_H_
#define TESSERA_CORE_CPU_ROW_DISPATCH_H_

#include "core/cpu/row_type.h"
#include "core/cpu/simd.h"

namespace tessera::TESSERA_ISA {

// Calls f(T{}).
template <typename F>
TESSERA_SIMD void DispatchRow(RowType type, F f) {
  switch (type) {
    case RowType::kFloat32:
      return f(float{});
    case RowType::kBFloat16:
      return f(Bf16{});
    case RowType::kFloat16:
      return f(F16{});
  }
}

}  // namespace tessera::TESSERA_ISA

#endif  // TESSERA_CORE_CPU_ROW_DISPATCH_H_
