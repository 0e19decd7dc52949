// SPDX-License-Identifier: Apache-2.0
#include "optim/lion/lion_chunks.h"
#include "optim/lion/lion_kernel.h"
#include "optim/update_cpu.h"

namespace tessera::optim {
namespace {

double Sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }

template <typename G>
void LionDouble(const LionArgs& args, const UpdateTensor& t, int64_t begin, int64_t n) {
  double* p = static_cast<double*>(t.param) + begin;
  double* m = static_cast<double*>(t.first) + begin;
  const G* grad = static_cast<const G*>(t.grad) + begin;
  const double lr = *args.scalars.learning_rate * t.lr_scale;
  const double grad_scale = GradScale(args.scalars);
  for (int64_t i = 0; i < n; ++i) {
    const double g = static_cast<double>(grad[i]) * grad_scale;
    p[i] -= lr * t.weight_decay * p[i];
    p[i] -= lr * Sign(args.beta1 * m[i] + (1.0 - args.beta1) * g);
    m[i] = args.beta2 * m[i] + (1.0 - args.beta2) * g;
  }
}

void LionCpu(const LionArgs& args) {
  if (Skipped(args.scalars)) return;
  const auto update = ForActiveIsa(&baseline::Lion, &avx2::Lion, &avx512::Lion);
  const double grad_scale = GradScale(args.scalars);
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "lion",
                    [&](auto zero) { LionDouble<decltype(zero)>(args, t, begin, n); });
      return;
    }
    const double lr = *args.scalars.learning_rate * t.lr_scale;
    const auto f = [](double value) { return static_cast<float>(value); };
    update({.base = UpdateChunkOf(t, begin, n, grad_scale),
            .exp_avg = static_cast<float*>(t.first) + begin,
            .decay = f(lr * t.weight_decay),
            .beta1 = f(args.beta1),
            .one_minus_beta1 = f(1.0 - args.beta1),
            .beta2 = f(args.beta2),
            .one_minus_beta2 = f(1.0 - args.beta2),
            .lr = f(lr)});
  });
}

TESSERA_REGISTER_KERNEL(lion_update, DeviceType::kCpu, LionCpu);

}  // namespace
}  // namespace tessera::optim
