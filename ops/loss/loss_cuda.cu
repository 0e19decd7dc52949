// SPDX-License-Identifier: Apache-2.0
// Losses on the GPU: a thread takes elements in turns.
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/loss/loss_formulas.h"
#include "ops/loss/loss_kernel.h"

namespace tessera::cuda {
namespace {

template <typename T>
__global__ void LossKernel(LossArgs args) {
  using W = Wide<T>;
  const T* x = static_cast<const T*>(args.x);
  const T* t = static_cast<const T*>(args.target);
  for (int64_t i = GridThread(); i < args.count; i += GridThreads()) {
    static_cast<W*>(args.out)[i] =
        formula::LossOf<W>(args.loss, static_cast<W>(args.parameter), ToWide(x[i]), ToWide(t[i]));
  }
}

template <typename T>
__global__ void LossGradKernel(LossGradArgs args) {
  using W = Wide<T>;
  const W* grad = static_cast<const W*>(args.grad);
  const T* x = static_cast<const T*>(args.x);
  const T* t = static_cast<const T*>(args.target);
  const W p = static_cast<W>(args.parameter);
  for (int64_t i = GridThread(); i < args.count; i += GridThreads()) {
    const W a = ToWide(x[i]);
    const W b = ToWide(t[i]);
    const W slope = args.by_target ? formula::LossTargetSlope<W>(args.loss, p, a, b)
                                   : formula::LossSlope<W>(args.loss, p, a, b);
    static_cast<T*>(args.out)[i] = FromWide<T>(grad[args.grad_repeats ? 0 : i] * slope);
  }
}

void LossCuda(const LossArgs& args) {
  DispatchCudaFloat(args.dtype, "loss", [&](auto zero) {
    Launch("loss", {GridFor(args.count), kThreads}, LossKernel<decltype(zero)>, args);
  });
}

void GradCuda(const LossGradArgs& args) {
  DispatchCudaFloat(args.dtype, "loss gradient", [&](auto zero) {
    Launch("loss gradient", {GridFor(args.count), kThreads}, LossGradKernel<decltype(zero)>, args);
  });
}

TESSERA_REGISTER_KERNEL(loss_kernel, DeviceType::kCuda, LossCuda);
TESSERA_REGISTER_KERNEL(loss_grad_kernel, DeviceType::kCuda, GradCuda);

}  // namespace
}  // namespace tessera::cuda
