// SPDX-License-Identifier: Apache-2.0
// A recurrent step on the GPU: a thread takes elements of a step in turns.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/recurrent/recurrent_element.h"
#include "ops/recurrent/recurrent_kernel.h"

namespace tessera::cuda {
namespace {

struct StepMath {
  template <typename T>
  static __device__ __forceinline__ Wide<T> Widen(T x) {
    return ToWide(x);
  }
  template <typename T>
  static __device__ __forceinline__ T Narrow(Wide<T> x) {
    return FromWide<T>(x);
  }
};

template <typename T>
__global__ void StepKernel(RecurrentStepArgs args) {
  for (int64_t i = GridThread(); i < args.batch * args.hidden; i += GridThreads()) {
    StepElement<StepMath, T, Wide<T>>(args, i / args.hidden, i % args.hidden);
  }
}

template <typename T>
__global__ void StepGradKernel(RecurrentStepGradArgs args) {
  for (int64_t i = GridThread(); i < args.batch * args.hidden; i += GridThreads()) {
    StepGradElement<StepMath, T, Wide<T>>(args, i / args.hidden, i % args.hidden);
  }
}

void StepCuda(const RecurrentStepArgs& args) {
  DispatchCudaFloat(args.dtype, "recurrent", [&](auto zero) {
    Launch("recurrent", {GridFor(args.batch * args.hidden), kThreads}, StepKernel<decltype(zero)>,
           args);
  });
}

void GradCuda(const RecurrentStepGradArgs& args) {
  DispatchCudaFloat(args.dtype, "recurrent gradient", [&](auto zero) {
    Launch("recurrent gradient", {GridFor(args.batch * args.hidden), kThreads},
           StepGradKernel<decltype(zero)>, args);
  });
}

TESSERA_REGISTER_KERNEL(recurrent_kernel, DeviceType::kCuda, StepCuda);
TESSERA_REGISTER_KERNEL(recurrent_grad_kernel, DeviceType::kCuda, GradCuda);

}  // namespace
}  // namespace tessera::cuda
