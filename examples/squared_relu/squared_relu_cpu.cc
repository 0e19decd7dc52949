// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include <tessera/core/thread_pool.h>

#include "examples/squared_relu/squared_relu_kernel.h"

namespace tessera::examples {
namespace {

constexpr int64_t kGrain = 16384;  // elements that are worth a thread

template <typename T>
void SquaredReluTyped(const SquaredReluArgs& args) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T* x = static_cast<const T*>(args.x);
  const T* grad = static_cast<const T*>(args.grad);
  T* out = static_cast<T*>(args.out);
  ParallelFor(args.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Wide positive = std::max(static_cast<Wide>(x[i]), Wide{0});
      out[i] = T(grad == nullptr ? positive * positive : 2 * positive * static_cast<Wide>(grad[i]));
    }
  });
}

void SquaredReluCpu(const SquaredReluArgs& args) {
  DispatchFloat(args.dtype, "squared_relu",
                [&](auto zero) { SquaredReluTyped<decltype(zero)>(args); });
}

TESSERA_REGISTER_KERNEL(squared_relu_kernel, DeviceType::kCpu, SquaredReluCpu);

}  // namespace
}  // namespace tessera::examples
