// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "examples/squared_relu/squared_relu_kernel.h"

namespace tessera::examples {
namespace {

using namespace tessera::cuda;

template <typename T>
__global__ void SquaredReluElements(int64_t n, const T* x, const T* grad, T* out) {
  for (int64_t i = GridThread(); i < n; i += GridThreads()) {
    const Wide<T> value = ToWide(x[i]);
    const Wide<T> positive = value < 0 ? 0 : value;  // a NaN stays one
    out[i] = FromWide<T>(grad == nullptr ? positive * positive : 2 * positive * ToWide(grad[i]));
  }
}

void SquaredReluCuda(const SquaredReluArgs& args) {
  DispatchCudaFloat(args.dtype, "squared_relu", [&](auto zero) {
    using T = decltype(zero);
    Launch("squared_relu", {GridFor(args.n), kThreads}, SquaredReluElements<T>, args.n,
           static_cast<const T*>(args.x), static_cast<const T*>(args.grad),
           static_cast<T*>(args.out));
  });
}

TESSERA_REGISTER_KERNEL(squared_relu_kernel, DeviceType::kCuda, SquaredReluCuda);

}  // namespace
}  // namespace tessera::examples
