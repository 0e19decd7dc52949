// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/every_isa.h"
#include "optim/lamb/lamb_chunks.h"
#include "optim/lamb/lamb_kernel.h"
#include "optim/update_cpu.h"

namespace tessera::optim {
namespace {

LambUpdate::Step StepOf(const LambArgs& args) {
  return args.rule.StepAt(static_cast<double>(*args.scalars.step));
}

double RateOf(const LambArgs& args, size_t index) {
  return LambRate(*args.scalars.learning_rate * args.tensors[index].lr_scale,
                  args.norms + 2 * index);
}

template <typename G>
void MomentsDouble(const LambArgs& args, const LambUpdate::Step& step, const UpdateTensor& t,
                   int64_t begin, int64_t n, double* sums) {
  const auto factors = args.rule.FactorsOf<double>(step, t.weight_decay);
  const double grad_scale = GradScale(args.scalars);
  const double* p = static_cast<const double*>(t.param);
  double* m = static_cast<double*>(t.states[0]);
  double* v = static_cast<double*>(t.states[1]);
  const G* grad = static_cast<const G*>(t.grad);
  sums[0] = sums[1] = 0;
  for (int64_t i = begin; i < begin + n; ++i) {
    DecayMoments(factors.moments, static_cast<double>(grad[i]) * grad_scale, &m[i], &v[i]);
    const double u = LambUpdate::Direction(factors, p[i], m[i], v[i]);
    sums[0] += p[i] * p[i];
    sums[1] += u * u;
  }
}

void ApplyDouble(const LambArgs& args, const LambUpdate::Step& step, const UpdateTensor& t,
                 double rate, int64_t begin, int64_t n) {
  const auto factors = args.rule.FactorsOf<double>(step, t.weight_decay);
  double* p = static_cast<double*>(t.param);
  const double* m = static_cast<const double*>(t.states[0]);
  const double* v = static_cast<const double*>(t.states[1]);
  for (int64_t i = begin; i < begin + n; ++i) {
    p[i] -= rate * LambUpdate::Direction(factors, p[i], m[i], v[i]);
  }
}

void LambMomentsCpu(const LambArgs& args) {
  if (Skipped(args.scalars)) return;
  const LambUpdate::Step step = StepOf(args);
  const auto moments = ForActiveIsa(TESSERA_FOR_EVERY_ISA(LambMoments));
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t chunk) {
    const UpdateTensor& t = args.tensors[index];
    double* sums = args.sums + 2 * chunk;
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "lamb", [&](auto zero) {
        MomentsDouble<decltype(zero)>(args, step, t, begin, n, sums);
      });
      return;
    }
    moments({UpdateChunkOf(t, begin, n, GradScale(args.scalars), 0), args.rule, step}, sums);
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
  const LambUpdate::Step step = StepOf(args);
  const auto apply = ForActiveIsa(TESSERA_FOR_EVERY_ISA(LambApply));
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    const double rate = RateOf(args, index);
    if (t.dtype == DType::kFloat64) {
      ApplyDouble(args, step, t, rate, begin, n);
    } else {
      apply({UpdateChunkOf(t, begin, n, GradScale(args.scalars), rate), args.rule, step});
    }
  });
}

TESSERA_REGISTER_KERNEL(lamb_moments, DeviceType::kCpu, LambMomentsCpu);
TESSERA_REGISTER_KERNEL(lamb_norms, DeviceType::kCpu, LambNormsCpu);
TESSERA_REGISTER_KERNEL(lamb_apply, DeviceType::kCpu, LambApplyCpu);

}  // namespace
}  // namespace tessera::optim
