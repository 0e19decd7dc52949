// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/row_dispatch.h"
#include "core/cpu/simd.h"
#include "ops/swiglu/swiglu_formulas.h"
#include "ops/swiglu/swiglu_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename T>
void ForwardOf(const T* gate, const T* up, T* out, int64_t n) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        StoreN(out + i, formula::SwiGlu(LoadN(gate + i, lanes), LoadN(up + i, lanes)), lanes);
      });
}

template <typename T>
void BackwardOf(const T* grad, const T* gate, const T* up, T* d_gate, T* d_up, int64_t n) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        VecF on_gate;
        VecF on_up;
        formula::SwiGluGrad(LoadN(grad + i, lanes), LoadN(gate + i, lanes), LoadN(up + i, lanes),
                            &on_gate, &on_up);
        StoreN(d_up + i, on_up, lanes);
        StoreN(d_gate + i, on_gate, lanes);
      });
}

void Forward(RowType type, const void* gate, const void* up, void* out, int64_t n) {
  DispatchRow(
      type, [=](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
        ForwardOf(static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(out), n);
      });
}

void Backward(RowType type, const void* grad, const void* gate, const void* up, void* d_gate,
              void* d_up, int64_t n) {
  DispatchRow(
      type, [=](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
        BackwardOf(static_cast<const T*>(grad), static_cast<const T*>(gate),
                   static_cast<const T*>(up), static_cast<T*>(d_gate), static_cast<T*>(d_up), n);
      });
}

}  // namespace

extern const SwiGluRows kSwiGluRows;
const SwiGluRows kSwiGluRows = {Forward, Backward};

}  // namespace tessera::TESSERA_ISA
