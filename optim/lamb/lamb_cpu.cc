// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "optim/lamb/lamb_chunks.h"
#include "optim/lamb/lamb_kernel.h"
#include "optim/update_cpu.h"

namespace tessera::optim {
namespace {

// What depends on the step, in float64.
struct LambStep {
  double grad_scale;
  double inverse_bias1;
  double inverse_sqrt_bias2;
};

LambStep StepOf(const LambArgs& args) {
  const auto step = static_cast<double>(*args.scalars.step);
  return {GradScale(args.scalars), 1.0 / (1.0 - std::pow(args.beta1, step)),
          1.0 / std::sqrt(1.0 - std::pow(args.beta2, step))};
}

// lr times the ratio of norms.
double RateOf(const LambArgs& args, size_t index) {
  const double* norms = args.norms + 2 * index;
  const double ratio = norms[0] > 0 && norms[1] > 0 ? std::sqrt(norms[0] / norms[1]) : 1.0;
  return *args.scalars.learning_rate * args.tensors[index].lr_scale * ratio;
}

LambChunk ChunkOf(const LambArgs& args, const LambStep& step, const UpdateTensor& t, int64_t begin,
                  int64_t n) {
  const auto f = [](double value) { return static_cast<float>(value); };
  return {.base = UpdateChunkOf(t, begin, n, step.grad_scale),
          .exp_avg = static_cast<float*>(t.first) + begin,
          .exp_avg_sq = static_cast<float*>(t.second) + begin,
          .beta1 = f(args.beta1),
          .one_minus_beta1 = f(1.0 - args.beta1),
          .beta2 = f(args.beta2),
          .one_minus_beta2 = f(1.0 - args.beta2),
          .inverse_bias1 = f(step.inverse_bias1),
          .inverse_sqrt_bias2 = f(step.inverse_sqrt_bias2),
          .eps = f(args.eps),
          .weight_decay = f(t.weight_decay),
          .step_size = 0};
}

double UpdateOf(const LambArgs& args, const LambStep& step, const UpdateTensor& t, int64_t i) {
  const double m = static_cast<const double*>(t.first)[i];
  const double v = static_cast<const double*>(t.second)[i];
  return m * step.inverse_bias1 / (std::sqrt(v) * step.inverse_sqrt_bias2 + args.eps) +
         t.weight_decay * static_cast<const double*>(t.param)[i];
}

template <typename G>
void MomentsDouble(const LambArgs& args, const LambStep& step, const UpdateTensor& t, int64_t begin,
                   int64_t n, double* sums) {
  const double* p = static_cast<const double*>(t.param);
  double* m = static_cast<double*>(t.first);
  double* v = static_cast<double*>(t.second);
  const G* grad = static_cast<const G*>(t.grad);
  sums[0] = sums[1] = 0;
  for (int64_t i = begin; i < begin + n; ++i) {
    const double g = static_cast<double>(grad[i]) * step.grad_scale;
    m[i] = args.beta1 * m[i] + (1.0 - args.beta1) * g;
    v[i] = args.beta2 * v[i] + (1.0 - args.beta2) * g * g;
    const double u = UpdateOf(args, step, t, i);
    sums[0] += p[i] * p[i];
    sums[1] += u * u;
  }
}

void LambMomentsCpu(const LambArgs& args) {
  if (Skipped(args.scalars)) return;
  const LambStep step = StepOf(args);
  const auto moments =
      ForActiveIsa(&baseline::LambMoments, &avx2::LambMoments, &avx512::LambMoments);
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t chunk) {
    const UpdateTensor& t = args.tensors[index];
    double* sums = args.sums + 2 * chunk;
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "lamb", [&](auto zero) {
        MomentsDouble<decltype(zero)>(args, step, t, begin, n, sums);
      });
      return;
    }
    moments(ChunkOf(args, step, t, begin, n), sums);
  });
}

void LambNormsCpu(const LambArgs& args) {
  if (Skipped(args.scalars)) return;
  const double* sums = args.sums;
  for (size_t index = 0; index < args.tensors.size(); ++index) {
    double* norms = args.norms + 2 * index;
    const double* end = sums + 2 * ((args.tensors[index].n + kUpdateChunk - 1) / kUpdateChunk);
    for (norms[0] = norms[1] = 0; sums < end; sums += 2) {
      norms[0] += sums[0];
      norms[1] += sums[1];
    }
  }
}

void LambApplyCpu(const LambArgs& args) {
  if (Skipped(args.scalars)) return;
  const LambStep step = StepOf(args);
  const auto apply = ForActiveIsa(&baseline::LambApply, &avx2::LambApply, &avx512::LambApply);
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    const double rate = RateOf(args, index);
    if (t.dtype == DType::kFloat64) {
      for (int64_t i = begin; i < begin + n; ++i) {
        static_cast<double*>(t.param)[i] -= rate * UpdateOf(args, step, t, i);
      }
      return;
    }
    LambChunk chunk = ChunkOf(args, step, t, begin, n);
    chunk.step_size = static_cast<float>(rate);
    apply(chunk);
  });
}

TESSERA_REGISTER_KERNEL(lamb_moments, DeviceType::kCpu, LambMomentsCpu);
TESSERA_REGISTER_KERNEL(lamb_norms, DeviceType::kCpu, LambNormsCpu);
TESSERA_REGISTER_KERNEL(lamb_apply, DeviceType::kCpu, LambApplyCpu);

}  // namespace
}  // namespace tessera::optim
