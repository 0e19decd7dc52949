// gelu(x + bias) and its gradient in one pass over memory.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "core/cuda/strided_index.h"
#include "ops/bias_gelu/bias_gelu_kernel.h"
#include "ops/elementwise/gelu.cuh"

namespace tessera::cuda {
namespace {

// dy is nullptr in the forward pass. Rows are n / kGroup groups long.
template <typename T, int kGroup>
__global__ void BiasGeluKernel(bool tanh, int64_t groups, FastDivider row, const T* x,
                               const T* bias, const T* dy, T* out) {
  using W = Wide<T>;
  for (int64_t i = GridThread(); i < groups; i += GridThreads()) {
    // Beyond 31 bits the slow division.
    const int64_t column =
        groups >> 31 == 0 ? static_cast<int64_t>(static_cast<uint32_t>(i) -
                                                 row.Divide(static_cast<uint32_t>(i)) * row.divisor)
                          : i % row.divisor;
    const Vec<T, kGroup> vx = LoadVec<kGroup>(x + i * kGroup);
    const Vec<T, kGroup> vb = LoadVec<kGroup>(bias + column * kGroup);
    Vec<T, kGroup> v;
    if (dy == nullptr) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const W s = ToWide(vx.v[k]) + ToWide(vb.v[k]);
        v.v[k] = FromWide<T>(tanh ? GeluTanh(s) : Gelu(s));
      }
    } else {
      const Vec<T, kGroup> vg = LoadVec<kGroup>(dy + i * kGroup);
#pragma unroll
      for (int k = 0; k < kGroup; ++k) {
        const W s = ToWide(vx.v[k]) + ToWide(vb.v[k]);
        const W g = ToWide(vg.v[k]);
        v.v[k] = FromWide<T>(tanh ? GeluTanhGrad(g, s) : GeluGrad(g, s));
      }
    }
    StoreVec<kGroup>(out + i * kGroup, v);
  }
}

void Run(DType dtype, bool tanh, int64_t rows, int64_t n, const void* x, const void* bias,
         const void* dy, void* out) {
  DispatchCudaFloat(dtype, "bias_gelu", [&](auto zero) {
    using T = decltype(zero);
    const bool groups = n % kVec<T> == 0 && AreAligned({x, bias, dy, out});
    DispatchCudaGroup<kVec<T>>(groups, [&](auto group) {
      constexpr int kGroup = decltype(group)::value;
      const int64_t count = rows * n / kGroup;
      Launch("bias_gelu", {GridFor(count), kThreads}, BiasGeluKernel<T, kGroup>, tanh, count,
             FastDivider(static_cast<uint32_t>(n / kGroup)), static_cast<const T*>(x),
             static_cast<const T*>(bias), static_cast<const T*>(dy), static_cast<T*>(out));
    });
  });
}

void ForwardCuda(const BiasGeluArgs& args) {
  Run(args.dtype, args.tanh, args.rows, args.n, args.x, args.bias, nullptr, args.y);
}
void BackwardCuda(const BiasGeluGradArgs& args) {
  Run(args.dtype, args.tanh, args.rows, args.n, args.x, args.bias, args.dy, args.dx);
}

TESSERA_REGISTER_KERNEL(bias_gelu_forward, DeviceType::kCuda, ForwardCuda);
TESSERA_REGISTER_KERNEL(bias_gelu_backward, DeviceType::kCuda, BackwardCuda);

}  // namespace
}  // namespace tessera::cuda
