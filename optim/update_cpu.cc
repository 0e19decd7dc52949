#include <cmath>

#include "core/cpu_isa.h"
#include "optim/chunk_loop.h"
#include "optim/update_chunks.h"
#include "optim/update_kernel.h"

namespace tessera::optim {
namespace {

const UpdateChunks& Chunks() {
  switch (ActiveIsa()) {
    case CpuIsa::kAvx512:
      return avx512::kUpdateChunks;
    case CpuIsa::kAvx2:
      return avx2::kUpdateChunks;
    case CpuIsa::kBaseline:
      break;
  }
  return baseline::kUpdateChunks;
}

UpdateType TypeOf(DType dtype) {
  return dtype == DType::kFloat32    ? UpdateType::kFloat32
         : dtype == DType::kBFloat16 ? UpdateType::kBFloat16
                                     : UpdateType::kFloat16;
}

void* At(void* data, DType dtype, int64_t i) {
  return static_cast<char*>(data) + i * static_cast<int64_t>(DTypeSize(dtype));
}
const void* At(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) + i * static_cast<int64_t>(DTypeSize(dtype));
}

bool Skipped(const UpdateScalars& s) { return s.found_inf != nullptr && *s.found_inf != 0; }

double GradScale(const UpdateScalars& s) {
  const double clip = s.clip_factor != nullptr ? static_cast<double>(*s.clip_factor) : 1.0;
  return s.loss_scale != nullptr ? clip / static_cast<double>(*s.loss_scale) : clip;
}

ChunkLoop LoopOver(const std::vector<UpdateTensor>& tensors) {
  ChunkLoop loop(kUpdateChunk);
  for (const UpdateTensor& t : tensors) loop.Add(t.n);
  return loop;
}

UpdateChunk BaseOf(const UpdateTensor& t, int64_t begin, int64_t n, double grad_scale) {
  return {TypeOf(t.dtype),
          TypeOf(t.grad_dtype),
          n,
          At(t.param, t.dtype, begin),
          t.master != nullptr ? t.master + begin : nullptr,
          At(t.grad, t.grad_dtype, begin),
          static_cast<float>(grad_scale)};
}

void AdvanceCpu(const AdvanceArgs& args) {
  if (!Skipped(args.scalars)) ++*args.scalars.step;
}

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
  const UpdateChunks& chunks = Chunks();
  LoopOver(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "adam",
                    [&](auto zero) { AdamDouble<decltype(zero)>(args, step, t, begin, n); });
      return;
    }
    const double lr = step.lr * t.lr_scale;
    const auto f = [](double value) { return static_cast<float>(value); };
    chunks.adam({.base = BaseOf(t, begin, n, step.grad_scale),
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
  const UpdateChunks& chunks = Chunks();
  const double grad_scale = GradScale(args.scalars);
  LoopOver(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "sgd",
                    [&](auto zero) { SgdDouble<decltype(zero)>(args, t, begin, n); });
      return;
    }
    chunks.sgd({.base = BaseOf(t, begin, n, grad_scale),
                .buffer = t.first != nullptr ? static_cast<float*>(t.first) + begin : nullptr,
                .l2 = static_cast<float>(t.weight_decay),
                .momentum = static_cast<float>(args.momentum),
                .lr = static_cast<float>(*args.scalars.learning_rate * t.lr_scale),
                .nesterov = args.nesterov});
  });
}

TESSERA_REGISTER_KERNEL(advance_step, DeviceType::kCpu, AdvanceCpu);
TESSERA_REGISTER_KERNEL(adam_update, DeviceType::kCpu, AdamCpu);
TESSERA_REGISTER_KERNEL(sgd_update, DeviceType::kCpu, SgdCpu);

}  // namespace
}  // namespace tessera::optim
