// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "core/thread_pool.h"
#include "ops/scan/scan_kernel.h"

namespace tessera {
namespace {

// Columns that are summed side by side.
constexpr int64_t kColumns = 64;

template <typename T>
void CumSumTyped(const CumSumArgs& args) {
  constexpr bool kInteger = std::is_same_v<T, int64_t>;
  using Sum = std::conditional_t<kInteger, uint64_t, double>;  // overflow wraps
  using Rounded =
      std::conditional_t<kInteger || std::is_same_v<T, double>, T, float>;  // on the way to T
  const auto [outer, count, inner] = args.dim;
  const int64_t blocks = (inner + kColumns - 1) / kColumns;
  const int64_t grain = std::max<int64_t>(1, 8192 / (count * std::min(inner, kColumns)));
  ParallelFor(outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t column = b % blocks * kColumns;
      const int64_t n = std::min(kColumns, inner - column);
      Sum sums[kColumns] = {};
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = b / blocks * count + (args.from_end ? count - 1 - i : i);
        const T* x = static_cast<const T*>(args.x) + row * inner + column;
        T* out = static_cast<T*>(args.out) + row * inner + column;
        for (int64_t j = 0; j < n; ++j) {
          sums[j] += static_cast<Sum>(x[j]);
          out[j] = T(static_cast<Rounded>(sums[j]));
        }
      }
    }
  });
}

void CumSumCpu(const CumSumArgs& args) {
  if (args.dtype == DType::kInt64) return CumSumTyped<int64_t>(args);
  DispatchFloat(args.dtype, "cumsum", [&](auto zero) { CumSumTyped<decltype(zero)>(args); });
}

TESSERA_REGISTER_KERNEL(cumsum_kernel, DeviceType::kCpu, CumSumCpu);

}  // namespace
}  // namespace tessera
