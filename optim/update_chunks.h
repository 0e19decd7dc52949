// SPDX-License-Identifier: Apache-2.0
// Elementwise updates of a run of elements, compiled once per instruction set. Raw pointers only.
//
// An optimizer states its formula once, as a rule (optim/adam/adam_update.h is the model to
// follow):
//   kStates              how many states an element has
//   Step                 what depends on the step alone, in float64; StepAt(count) computes it
//   Factors<V>           the numbers of the formula in the type of its values;
//   FactorsOf<V>(step, lr, weight_decay)
//   Apply<V>(factors, gradient, &weight, states)
// with V a vector of floats (optim/update_simd.h), float (optim/update_cuda.cuh) or double, for
// float64 parameters (optim/update_cpu.h and optim/update_cuda.cuh).
#ifndef TESSERA_OPTIM_UPDATE_CHUNKS_H_
#define TESSERA_OPTIM_UPDATE_CHUNKS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera::optim {

enum class UpdateType : uint8_t { kFloat32, kBFloat16, kFloat16 };

// As many states as an element has at most.
inline constexpr int kMaxStates = 2;

// Computed in float32.
struct UpdateChunk {
  UpdateType type;       // of param
  UpdateType grad_type;  // of grad
  int64_t n;
  void* param;    // "="
  float* master;  // the weights where type is half (param = their rounding), else nullptr
  const void* grad;
  float grad_scale;
  float* states[kMaxStates];  // "="; nullptr: zeros that are not kept
  double lr;                  // of the tensor
  double weight_decay;
};

// Each rule's _isa.cc instantiates them.
TESSERA_DECLARE_FOR_EVERY_ISA(template <typename Rule>
                              void UpdateRun(const UpdateChunk& chunk, const Rule& rule,
                                             const typename Rule::Step& step);)

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_UPDATE_CHUNKS_H_
