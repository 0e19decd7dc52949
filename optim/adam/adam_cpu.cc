// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "optim/adam/adam_chunks.h"
#include "optim/adam/adam_kernel.h"
#include "optim/update_cpu.h"

namespace tessera::optim {
namespace {

// What depends on the step, in float64.
struct AdamStep {
  double grad_scale;
  double lr;
  double inverse_bias1;
  double inverse_sqrt_bias2;
};

AdamStep StepOf(const AdamArgs& args) {
  const auto step = static_cast<double>(*args.scalars.step);
  return {GradScale(args.scalars), *args.scalars.learning_rate,
          1.0 / (1.0 - std::pow(args.beta1, step)),
          1.0 / std::sqrt(1.0 - std::pow(args.beta2, step))};
}

// Float64 parameters (gradient checks, references): plain loops, gradients of any dtype.
template <typename G>
void AdamDouble(const AdamArgs& args, const AdamStep& step, const UpdateTensor& t, int64_t begin,
                int64_t n) {
  double* p = static_cast<double*>(t.param) + begin;
  double* m = static_cast<double*>(t.first) + begin;
  double* v = static_cast<double*>(t.second) + begin;
  const G* grad = static_cast<const G*>(t.grad) + begin;
  const double lr = step.lr * t.lr_scale;
  for (int64_t i = 0; i < n; ++i) {
    double g = static_cast<double>(grad[i]) * step.grad_scale;
    if (args.decoupled) {
      p[i] -= lr * t.weight_decay * p[i];
    } else {
      g += t.weight_decay * p[i];
    }
    m[i] = args.beta1 * m[i] + (1.0 - args.beta1) * g;
    v[i] = args.beta2 * v[i] + (1.0 - args.beta2) * g * g;
    p[i] -= lr * step.inverse_bias1 * m[i] / (std::sqrt(v[i]) * step.inverse_sqrt_bias2 + args.eps);
  }
}

void AdamCpu(const AdamArgs& args) {
  if (Skipped(args.scalars)) return;
  const AdamStep step = StepOf(args);
  const auto update = ForActiveIsa(&baseline::Adam, &avx2::Adam, &avx512::Adam);
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "adam",
                    [&](auto zero) { AdamDouble<decltype(zero)>(args, step, t, begin, n); });
      return;
    }
    const double lr = step.lr * t.lr_scale;
    const auto f = [](double value) { return static_cast<float>(value); };
    update({.base = UpdateChunkOf(t, begin, n, step.grad_scale),
            .exp_avg = static_cast<float*>(t.first) + begin,
            .exp_avg_sq = static_cast<float*>(t.second) + begin,
            .l2 = args.decoupled ? 0.0f : f(t.weight_decay),
            .decay = args.decoupled ? f(lr * t.weight_decay) : 0.0f,
            .beta1 = f(args.beta1),
            .one_minus_beta1 = f(1.0 - args.beta1),
            .beta2 = f(args.beta2),
            .one_minus_beta2 = f(1.0 - args.beta2),
            .inverse_sqrt_bias2 = f(step.inverse_sqrt_bias2),
            .eps = f(args.eps),
            .step_size = f(lr * step.inverse_bias1)});
  });
}

TESSERA_REGISTER_KERNEL(adam_update, DeviceType::kCpu, AdamCpu);

}  // namespace
}  // namespace tessera::optim
