// SPDX-License-Identifier: Apache-2.0
#include "core/combine_elements.h"

#include <type_traits>

namespace tessera {

void CombineElements(DType dtype, void* into, const void* next, int64_t count, ReduceOp op) {
  DispatchAll(dtype, "reduction over ranks", [&](auto zero) {
    using T = decltype(zero);
    auto* a = static_cast<T*>(into);
    const auto* b = static_cast<const T*>(next);
    if (op == ReduceOp::kSum) {
      if constexpr (std::is_same_v<T, bool>) {
        TESSERA_CHECK(false, "reduction over ranks", "bool has no sum");
      } else {
        for (int64_t i = 0; i < count; ++i) a[i] = static_cast<T>(a[i] + b[i]);
      }
    } else if (op == ReduceOp::kMax) {
      for (int64_t i = 0; i < count; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
    } else {
      for (int64_t i = 0; i < count; ++i) a[i] = a[i] < b[i] ? a[i] : b[i];
    }
  });
}

}  // namespace tessera
