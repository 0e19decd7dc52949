// SPDX-License-Identifier: Apache-2.0
// SwiGLU on the GPU: 16 bytes at a time where the tensors lie so.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/swiglu/swiglu_formulas.h"
#include "ops/swiglu/swiglu_kernel.h"

namespace tessera::cuda {
namespace {

// Groups of kN elements.
template <typename T, int kN>
__global__ void ForwardKernel(int64_t groups, const T* gate, const T* up, T* out) {
  for (int64_t i = GridThread(); i < groups; i += GridThreads()) {
    Vec<T, kN> g = LoadVec<kN>(gate + i * kN);
    const Vec<T, kN> u = LoadVec<kN>(up + i * kN);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      g.v[k] = FromWide<T>(formula::SwiGlu(ToWide(g.v[k]), ToWide(u.v[k])));
    }
    StoreVec<kN>(out + i * kN, g);
  }
}

template <typename T, int kN>
__global__ void BackwardKernel(int64_t groups, const T* grad, const T* gate, const T* up, T* d_gate,
                               T* d_up) {
  using W = Wide<T>;
  for (int64_t i = GridThread(); i < groups; i += GridThreads()) {
    const Vec<T, kN> d = LoadVec<kN>(grad + i * kN);
    Vec<T, kN> g = LoadVec<kN>(gate + i * kN);
    Vec<T, kN> u = LoadVec<kN>(up + i * kN);
#pragma unroll
    for (int k = 0; k < kN; ++k) {
      W on_gate;
      W on_up;
      formula::SwiGluGrad(ToWide(d.v[k]), ToWide(g.v[k]), ToWide(u.v[k]), &on_gate, &on_up);
      g.v[k] = FromWide<T>(on_gate);
      u.v[k] = FromWide<T>(on_up);
    }
    StoreVec<kN>(d_gate + i * kN, g);
    StoreVec<kN>(d_up + i * kN, u);
  }
}

// run(kN) with as many elements per access as the tensors allow.
template <typename T, typename F>
void WithGroups(int64_t n, std::initializer_list<const void*> tensors, F run) {
  constexpr int kMost = 16 / sizeof(T);
  if (n % kMost == 0 && AreAligned(tensors, 16)) {
    run(std::integral_constant<int, kMost>());
  } else {
    run(std::integral_constant<int, 1>());
  }
}

void ForwardCuda(const SwiGluArgs& args) {
  DispatchCudaFloat(args.dtype, "swiglu", [&](auto zero) {
    using T = decltype(zero);
    WithGroups<T>(args.n, {args.gate, args.up, args.out}, [&](auto size) {
      constexpr int kN = decltype(size)::value;
      Launch("swiglu", {GridFor(args.n / kN), kThreads}, ForwardKernel<T, kN>, args.n / kN,
             static_cast<const T*>(args.gate), static_cast<const T*>(args.up),
             static_cast<T*>(args.out));
    });
  });
}

void BackwardCuda(const SwiGluGradArgs& args) {
  DispatchCudaFloat(args.dtype, "swiglu gradient", [&](auto zero) {
    using T = decltype(zero);
    WithGroups<T>(args.n, {args.grad, args.gate, args.up, args.d_gate, args.d_up}, [&](auto size) {
      constexpr int kN = decltype(size)::value;
      Launch("swiglu gradient", {GridFor(args.n / kN), kThreads}, BackwardKernel<T, kN>,
             args.n / kN, static_cast<const T*>(args.grad), static_cast<const T*>(args.gate),
             static_cast<const T*>(args.up), static_cast<T*>(args.d_gate),
             static_cast<T*>(args.d_up));
    });
  });
}

TESSERA_REGISTER_KERNEL(swiglu_forward, DeviceType::kCuda, ForwardCuda);
TESSERA_REGISTER_KERNEL(swiglu_backward, DeviceType::kCuda, BackwardCuda);

}  // namespace
}  // namespace tessera::cuda
