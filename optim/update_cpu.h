// SPDX-License-Identifier: Apache-2.0
// What the CPU's kernels of elementwise updates share.
#ifndef TESSERA_OPTIM_UPDATE_CPU_H_
#define TESSERA_OPTIM_UPDATE_CPU_H_

#include <cstdint>
#include <vector>

#include "core/cpu/every_isa.h"
#include "core/cpu_isa.h"
#include "optim/chunk_loop.h"
#include "optim/update_chunks.h"
#include "optim/update_kernel.h"

namespace tessera::optim {

inline UpdateType UpdateTypeOf(DType dtype) {
  return dtype == DType::kFloat32    ? UpdateType::kFloat32
         : dtype == DType::kBFloat16 ? UpdateType::kBFloat16
                                     : UpdateType::kFloat16;
}

// Where element i of an array lies.
inline void* ElementAt(void* data, DType dtype, int64_t i) {
  return static_cast<char*>(data) + i * static_cast<int64_t>(DTypeSize(dtype));
}
// Likewise of one that is read.
inline const void* ElementAt(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) + i * static_cast<int64_t>(DTypeSize(dtype));
}

// Whether the step is left out, for an overflow.
inline bool Skipped(const UpdateScalars& s) { return s.found_inf != nullptr && *s.found_inf != 0; }

// What gradients are multiplied by: unscaled and clipped.
inline double GradScale(const UpdateScalars& s) {
  const double clip = s.clip_factor != nullptr ? static_cast<double>(*s.clip_factor) : 1.0;
  return s.loss_scale != nullptr ? clip / static_cast<double>(*s.loss_scale) : clip;
}

// A threaded loop over the chunks of all tensors.
inline ChunkLoop UpdateLoop(const std::vector<UpdateTensor>& tensors) {
  ChunkLoop loop(kUpdateChunk);
  for (const UpdateTensor& t : tensors) loop.Add(t.n);
  return loop;
}

// n elements of a float32 or half-precision tensor from `begin` on; `lr` is the tensor's.
inline UpdateChunk UpdateChunkOf(const UpdateTensor& t, int64_t begin, int64_t n, double grad_scale,
                                 double lr) {
  const auto state = [&](int s) {
    return t.states[s] != nullptr ? static_cast<float*>(t.states[s]) + begin : nullptr;
  };
  return {.type = UpdateTypeOf(t.dtype),
          .grad_type = UpdateTypeOf(t.grad_dtype),
          .n = n,
          .param = ElementAt(t.param, t.dtype, begin),
          .master = t.master != nullptr ? t.master + begin : nullptr,
          .grad = ElementAt(t.grad, t.grad_dtype, begin),
          .grad_scale = static_cast<float>(grad_scale),
          .states = {state(0), state(1)},
          .lr = lr,
          .weight_decay = t.weight_decay};
}

// One of a function's versions, by the instruction set in use.
template <typename Fn, typename... Higher>
Fn* ForActiveIsa(Fn* lowest, Higher*... higher) {
  return IsaTable<Fn>{lowest, higher...}.Select();
}

// n elements of a float64 tensor (gradient checks, references), gradients of any dtype G.
template <typename G, typename Rule>
void UpdateDouble(const Rule& rule, const typename Rule::Step& step, const UpdateTensor& t,
                  double lr, double grad_scale, int64_t begin, int64_t n) {
  const auto factors = rule.template FactorsOf<double>(step, lr, t.weight_decay);
  double* param = static_cast<double*>(t.param);
  const G* grad = static_cast<const G*>(t.grad);
  for (int64_t i = begin; i < begin + n; ++i) {
    double states[Rule::kStates] = {};
    for (int s = 0; s < Rule::kStates; ++s) {
      if (t.states[s] != nullptr) states[s] = static_cast<const double*>(t.states[s])[i];
    }
    Rule::Apply(factors, static_cast<double>(grad[i]) * grad_scale, &param[i], states);
    for (int s = 0; s < Rule::kStates; ++s) {
      if (t.states[s] != nullptr) static_cast<double*>(t.states[s])[i] = states[s];
    }
  }
}

// The CPU's kernel of a rule.
template <typename Rule>
void UpdateCpu(const UpdateArgs<Rule>& args) {
  if (Skipped(args.scalars)) return;
  const auto step = args.rule.StepAt(static_cast<double>(*args.scalars.step));
  const double grad_scale = GradScale(args.scalars);
  const auto run = ForActiveIsa(TESSERA_FOR_EVERY_ISA(UpdateRun<Rule>));
  UpdateLoop(args.tensors).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const UpdateTensor& t = args.tensors[index];
    const double lr = *args.scalars.learning_rate * t.lr_scale;
    if (t.dtype == DType::kFloat64) {
      DispatchFloat(t.grad_dtype, "optimizer step", [&](auto zero) {
        UpdateDouble<decltype(zero)>(args.rule, step, t, lr, grad_scale, begin, n);
      });
    } else {
      run(UpdateChunkOf(t, begin, n, grad_scale, lr), args.rule, step);
    }
  });
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_UPDATE_CPU_H_
