// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd/sgd_chunks.h"
#include "optim/sgd/sgd_kernel.h"
#include "optim/update_cpu.h"

namespace tessera::optim {
namespace {

template <typename G>
void SgdDouble(const SgdArgs& args, const UpdateTensor& t, int64_t begin, int64_t n) {
  double* p = static_cast<double*>(t.param) + begin;
  double* buffer = t.first != nullptr ? static_cast<double*>(t.first) + begin : nullptr;
  const G* grad = static_cast<const G*>(t.grad) + begin;
  const double lr = *args.scalars.learning_rate * t.lr_scale;
  const double grad_scale = GradScale(args.scalars);
  for (int64_t i = 0; i < n; ++i) {
    double g = static_cast<double>(grad[i]) * grad_scale + t.weight_decay * p[i];
    if (buffer != nullptr) {
      buffer[i] = args.momentum * buffer[i] + g;
      g = args.nesterov ? g + args.momentum * buffer[i] : buffer[i];
    }
    p[i] -= lr * g;
  }
}

void SgdCpu(const SgdArgs& args) {
  if (Skipped(args.scalars)) return;
  const auto update = ForActiveIsa(&baseline::Sgd, &avx2::Sgd, &avx512::Sgd);
  const double grad_scale = GradScale(args.scalars);
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "sgd",
                    [&](auto zero) { SgdDouble<decltype(zero)>(args, t, begin, n); });
      return;
    }
    update({.base = UpdateChunkOf(t, begin, n, grad_scale),
            .buffer = t.first != nullptr ? static_cast<float*>(t.first) + begin : nullptr,
            .l2 = static_cast<float>(t.weight_decay),
            .momentum = static_cast<float>(args.momentum),
            .lr = static_cast<float>(*args.scalars.learning_rate * t.lr_scale),
            .nesterov = args.nesterov});
  });
}

TESSERA_REGISTER_KERNEL(sgd_update, DeviceType::kCpu, SgdCpu);

}  // namespace
}  // namespace tessera::optim
