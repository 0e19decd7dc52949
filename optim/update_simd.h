// SPDX-License-Identifier: Apache-2.0
// What the vector code of elementwise updates shares: weights, masters and gradients of every
// dtype. For sources of tessera_isa_library.
#ifndef TESSERA_OPTIM_UPDATE_SIMD_H_
#define TESSERA_OPTIM_UPDATE_SIMD_H_

#include "core/cpu/simd.h"
#include "optim/update_chunks.h"

namespace tessera::optim::TESSERA_ISA {

using namespace tessera::TESSERA_ISA;  // NOLINT(google-build-using-namespace): the vectors

// `lanes` is a constant in the body of ForEachVector and less in its tail.
template <typename T>
TESSERA_SIMD VecF Get(const T* p, int64_t lanes) {
  return lanes == kLanes ? Load(p) : LoadN(p, lanes);
}
template <typename T>
TESSERA_SIMD void Put(T* p, VecF v, int64_t lanes) {
  if (lanes == kLanes) {
    Store(p, v);
  } else {
    StoreN(p, v, lanes);
  }
}

// The weights of a chunk as float32: P is float, or the half type that they are rounded to.
template <typename P>
struct Weights {
  P* param;
  float* master;
  TESSERA_SIMD VecF Read(const Weights& w, int64_t i, int64_t lanes) {
    return Get(w.master + i, lanes);
  }
  TESSERA_SIMD void Write(const Weights& w, VecF v, int64_t i, int64_t lanes) {
    Put(w.master + i, v, lanes);
    Put(w.param + i, v, lanes);
  }
};
template <>
struct Weights<float> {
  float* param;
  float* master;
  TESSERA_SIMD VecF Read(const Weights& w, int64_t i, int64_t lanes) {
    return Get(w.param + i, lanes);
  }
  TESSERA_SIMD void Write(const Weights& w, VecF v, int64_t i, int64_t lanes) {
    Put(w.param + i, v, lanes);
  }
};

template <typename P, typename F>
TESSERA_SIMD void DispatchGrad(UpdateType grad_type, F f) {
  switch (grad_type) {
    case UpdateType::kFloat32:
      return f(P{}, float{});
    case UpdateType::kBFloat16:
      return f(P{}, Bf16{});
    case UpdateType::kFloat16:
      return f(P{}, F16{});
  }
}
// Calls f(P{}) for the type of a chunk's weights, and f(P{}, G{}) for those and the gradient's.
template <typename F>
TESSERA_SIMD void DispatchWeights(const UpdateChunk& c, F f) {
  switch (c.type) {
    case UpdateType::kFloat32:
      return f(float{});
    case UpdateType::kBFloat16:
      return f(Bf16{});
    case UpdateType::kFloat16:
      return f(F16{});
  }
}
template <typename F>
TESSERA_SIMD void Dispatch(const UpdateChunk& c, F f) {
  DispatchWeights(c, [&](auto p) { DispatchGrad<decltype(p)>(c.grad_type, f); });
}

// Not static: the kernels of the CPU (optim/update_cpu.h) call what a rule's source instantiates.
template <typename Rule>
void UpdateRun(const UpdateChunk& c, const Rule& rule, const typename Rule::Step& step) {
  const auto factors = rule.template FactorsOf<VecF>(step, c.lr, c.weight_decay);
  const VecF grad_scale = Set(c.grad_scale);
  float* memory[Rule::kStates];
  for (int s = 0; s < Rule::kStates; ++s) memory[s] = c.states[s];
  Dispatch(
      c, [&](auto p, auto g) __attribute__((always_inline)) {
        const Weights<decltype(p)> weights{static_cast<decltype(p)*>(c.param), c.master};
        const auto* grad = static_cast<const decltype(g)*>(c.grad);
        ForEachVector(
            c.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
              VecF w = Weights<decltype(p)>::Read(weights, i, lanes);
              VecF states[Rule::kStates];
              for (int s = 0; s < Rule::kStates; ++s) {
                states[s] = memory[s] != nullptr ? Get(memory[s] + i, lanes) : Zero();
              }
              Rule::Apply(factors, Get(grad + i, lanes) * grad_scale, &w, states);
              for (int s = 0; s < Rule::kStates; ++s) {
                if (memory[s] != nullptr) Put(memory[s] + i, states[s], lanes);
              }
              Weights<decltype(p)>::Write(weights, w, i, lanes);
            });
      });
}

}  // namespace tessera::optim::TESSERA_ISA

#endif  // TESSERA_OPTIM_UPDATE_SIMD_H_
