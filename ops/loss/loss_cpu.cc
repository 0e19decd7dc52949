// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/loss/loss_formulas.h"
#include "ops/loss/loss_kernel.h"

namespace tessera {
namespace {

constexpr int64_t kGrain = 16384;

const LossRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kLossRows)); }

// Element `i` of a tensor of a dtype.
const void* At(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) + BytesOf(dtype, i);
}
void* At(void* data, DType dtype, int64_t i) {
  return static_cast<char*>(data) + BytesOf(dtype, i);
}

void LossDouble(const LossArgs& args, int64_t begin, int64_t end) {
  const auto* x = static_cast<const double*>(args.x);
  const auto* t = static_cast<const double*>(args.target);
  auto* out = static_cast<double*>(args.out);
  for (int64_t i = begin; i < end; ++i) {
    out[i] = formula::LossOf<double>(args.loss, args.parameter, x[i], t[i]);
  }
}

void LossCpu(const LossArgs& args) {
  const LossRows& rows = Rows();
  ParallelFor(args.count, kGrain, [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return LossDouble(args, begin, end);
    rows.values(args.loss, static_cast<float>(args.parameter), RowTypeOf(args.dtype),
                At(args.x, args.dtype, begin), At(args.target, args.dtype, begin),
                static_cast<float*>(args.out) + begin, end - begin);
  });
}

void GradDouble(const LossGradArgs& args, int64_t begin, int64_t end) {
  const auto* g = static_cast<const double*>(args.grad);
  const auto* x = static_cast<const double*>(args.x);
  const auto* t = static_cast<const double*>(args.target);
  auto* out = static_cast<double*>(args.out);
  const auto slope = args.by_target ? formula::LossTargetSlope<double> : formula::LossSlope<double>;
  for (int64_t i = begin; i < end; ++i) {
    out[i] = g[args.grad_repeats ? 0 : i] * slope(args.loss, args.parameter, x[i], t[i]);
  }
}

void GradCpu(const LossGradArgs& args) {
  const LossRows& rows = Rows();
  ParallelFor(args.count, kGrain, [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return GradDouble(args, begin, end);
    const auto* grad = static_cast<const float*>(args.grad);
    rows.gradient(args.loss, static_cast<float>(args.parameter), args.by_target,
                  RowTypeOf(args.dtype), args.grad_repeats ? grad : grad + begin, args.grad_repeats,
                  At(args.x, args.dtype, begin), At(args.target, args.dtype, begin),
                  At(args.out, args.dtype, begin), end - begin);
  });
}

TESSERA_REGISTER_KERNEL(loss_kernel, DeviceType::kCpu, LossCpu);
TESSERA_REGISTER_KERNEL(loss_grad_kernel, DeviceType::kCpu, GradCpu);

}  // namespace
}  // namespace tessera
