// Softmax and log-softmax by rows: a block takes a row, three passes that the caches serve.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/math.cuh"
#include "core/cuda/reduce.cuh"
#include "ops/softmax/softmax_kernel.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void ForwardKernel(bool log, int64_t rows, int64_t n, const T* x_RN, T* y_RN) {
  using W = Wide<T>;
  const W lowest = static_cast<W>(-INFINITY);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = x_RN + row * n;
    T* y = y_RN + row * n;
    W max = lowest;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) max = MaxOp()(max, ToWide(x[i]));
    max = BlockReduce(max, MaxOp(), lowest);
    W sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += ExpOf(ToWide(x[i]) - max);
    sum = BlockReduce(sum, SumOp(), W(0));
    const W log_sum = LogOf(sum);
    const W scale = W(1) / sum;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const W shifted = ToWide(x[i]) - max;
      y[i] = FromWide<T>(log ? shifted - log_sum : ExpOf(shifted) * scale);
    }
  }
}

// dx = y (dy - sum(dy y)), and dy - exp(y) sum(dy) for the logarithm.
template <typename T>
__global__ void BackwardKernel(bool log, int64_t rows, int64_t n, const T* y_RN, const T* dy_RN,
                               T* dx_RN) {
  using W = Wide<T>;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* y = y_RN + row * n;
    const T* dy = dy_RN + row * n;
    T* dx = dx_RN + row * n;
    W sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      sum += log ? ToWide(dy[i]) : ToWide(dy[i]) * ToWide(y[i]);
    }
    sum = BlockReduce(sum, SumOp(), W(0));
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const W g = ToWide(dy[i]);
      const W v = ToWide(y[i]);
      dx[i] = FromWide<T>(log ? g - ExpOf(v) * sum : v * (g - sum));
    }
  }
}

void ForwardCuda(const SoftmaxArgs& args) {
  DispatchCudaFloat(args.dtype, "softmax", [&](auto zero) {
    using T = decltype(zero);
    Launch("softmax", {GridForRows(args.rows), ThreadsForRow(args.n, 4)}, ForwardKernel<T>,
           args.log, args.rows, args.n, static_cast<const T*>(args.x), static_cast<T*>(args.y));
  });
}

void BackwardCuda(const SoftmaxGradArgs& args) {
  DispatchCudaFloat(args.dtype, "softmax gradient", [&](auto zero) {
    using T = decltype(zero);
    Launch("softmax gradient", {GridForRows(args.rows), ThreadsForRow(args.n, 4)},
           BackwardKernel<T>, args.log, args.rows, args.n, static_cast<const T*>(args.y),
           static_cast<const T*>(args.dy), static_cast<T*>(args.dx));
  });
}

TESSERA_REGISTER_KERNEL(softmax_forward, DeviceType::kCuda, ForwardCuda);
TESSERA_REGISTER_KERNEL(softmax_backward, DeviceType::kCuda, BackwardCuda);

}  // namespace
}  // namespace tessera::cuda
