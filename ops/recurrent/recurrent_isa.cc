// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/row_dispatch.h"
#include "core/cpu/simd.h"
#include "ops/recurrent/recurrent_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

// The rows of a step, their pointers typed; gate k of a row begins k * hidden elements on.
template <typename T>
void Plain(const RecurrentRow& row) {
  const T* p = static_cast<const T*>(row.projected);
  const T* q = static_cast<const T*>(row.recurrent);
  const bool relu = row.cell == RecurrentCell::kRelu;
  ForEachVector(
      row.hidden, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF sum = LoadN(p + i, lanes) + LoadN(q + i, lanes);
        StoreN(static_cast<T*>(row.h) + i, relu ? Max(Zero(), sum) : Tanh(sum), lanes);
      });
}

template <typename T>
void Lstm(const RecurrentRow& row) {
  const int64_t n = row.hidden;
  const T* p = static_cast<const T*>(row.projected);
  const T* q = static_cast<const T*>(row.recurrent);
  T* kept = static_cast<T*>(row.kept);
  ForEachVector(
      n, [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
        const auto sum = [&](int gate) __attribute__((always_inline)) {
          return LoadN(p + gate * n + j, lanes) + LoadN(q + gate * n + j, lanes);
        };
        const VecF i = Sigmoid(sum(0));
        const VecF f = Sigmoid(sum(1));
        const VecF g = Tanh(sum(2));
        const VecF o = Sigmoid(sum(3));
        const VecF c = Fma(f, LoadN(row.c_before + j, lanes), i * g);
        StoreN(row.c + j, c, lanes);
        StoreN(static_cast<T*>(row.h) + j, o * Tanh(c), lanes);
        if (kept == nullptr) return;
        StoreN(kept + j, i, lanes);
        StoreN(kept + n + j, f, lanes);
        StoreN(kept + 2 * n + j, g, lanes);
        StoreN(kept + 3 * n + j, o, lanes);
      });
}

template <typename T>
void Gru(const RecurrentRow& row) {
  const int64_t n = row.hidden;
  const T* p = static_cast<const T*>(row.projected);
  const T* q = static_cast<const T*>(row.recurrent);
  T* kept = static_cast<T*>(row.kept);
  ForEachVector(
      n, [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
        const VecF r = Sigmoid(LoadN(p + j, lanes) + LoadN(q + j, lanes));
        const VecF z = Sigmoid(LoadN(p + n + j, lanes) + LoadN(q + n + j, lanes));
        const VecF qn = LoadN(q + 2 * n + j, lanes);
        const VecF candidate = Tanh(Fma(r, qn, LoadN(p + 2 * n + j, lanes)));
        const VecF before = LoadN(static_cast<const T*>(row.h_before) + j, lanes);
        StoreN(static_cast<T*>(row.h) + j, Fma(z, before - candidate, candidate), lanes);
        if (kept == nullptr) return;
        StoreN(kept + j, r, lanes);
        StoreN(kept + n + j, z, lanes);
        StoreN(kept + 2 * n + j, candidate, lanes);
        StoreN(kept + 3 * n + j, qn, lanes);
      });
}

template <typename T>
void ForwardTyped(const RecurrentRow& row) {
  switch (row.cell) {
    case RecurrentCell::kTanh:
    case RecurrentCell::kRelu:
      return Plain<T>(row);
    case RecurrentCell::kLstm:
      return Lstm<T>(row);
    case RecurrentCell::kGru:
      return Gru<T>(row);
  }
}

// The gradient that reaches h: from later steps, and from the output.
template <typename T>
TESSERA_SIMD VecF GradOfH(const RecurrentGradRow& row, int64_t i, int64_t lanes) {
  const VecF later = LoadN(row.dh + i, lanes);
  if (row.d_output == nullptr) return later;
  return later + LoadN(static_cast<const T*>(row.d_output) + i, lanes);
}

template <typename T>
void PlainGrad(const RecurrentGradRow& row) {
  const bool relu = row.cell == RecurrentCell::kRelu;
  ForEachVector(
      row.hidden, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF dh = GradOfH<T>(row, i, lanes);
        const VecF h = LoadN(static_cast<const T*>(row.h) + i, lanes);
        const VecF d = relu ? Select(h > Zero(), dh, Zero()) : dh * NegFma(h, h, Set(1.0f));
        StoreN(static_cast<T*>(row.d_projected) + i, d, lanes);
        StoreN(row.dh + i, Zero(), lanes);
      });
}

// s (1 - s), the derivative of a sigmoid that is s.
TESSERA_SIMD VecF SigmoidSlope(VecF s) { return NegFma(s, s, s); }

template <typename T>
void LstmGrad(const RecurrentGradRow& row) {
  const int64_t n = row.hidden;
  const T* kept = static_cast<const T*>(row.kept);
  T* d = static_cast<T*>(row.d_projected);
  const VecF one = Set(1.0f);
  ForEachVector(
      n, [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
        const VecF i = LoadN(kept + j, lanes);
        const VecF f = LoadN(kept + n + j, lanes);
        const VecF g = LoadN(kept + 2 * n + j, lanes);
        const VecF o = LoadN(kept + 3 * n + j, lanes);
        const VecF dh = GradOfH<T>(row, j, lanes);
        const VecF tanh_c = Tanh(LoadN(row.c + j, lanes));
        const VecF dc = Fma(dh * o, NegFma(tanh_c, tanh_c, one), LoadN(row.dc + j, lanes));
        StoreN(d + j, dc * g * SigmoidSlope(i), lanes);
        StoreN(d + n + j, dc * LoadN(row.c_before + j, lanes) * SigmoidSlope(f), lanes);
        StoreN(d + 2 * n + j, dc * i * NegFma(g, g, one), lanes);
        StoreN(d + 3 * n + j, dh * tanh_c * SigmoidSlope(o), lanes);
        StoreN(row.dc + j, dc * f, lanes);
        StoreN(row.dh + j, Zero(), lanes);
      });
}

template <typename T>
void GruGrad(const RecurrentGradRow& row) {
  const int64_t n = row.hidden;
  const T* kept = static_cast<const T*>(row.kept);
  T* dp = static_cast<T*>(row.d_projected);
  T* dq = static_cast<T*>(row.d_recurrent);
  const VecF one = Set(1.0f);
  ForEachVector(
      n, [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
        const VecF r = LoadN(kept + j, lanes);
        const VecF z = LoadN(kept + n + j, lanes);
        const VecF candidate = LoadN(kept + 2 * n + j, lanes);
        const VecF before = LoadN(static_cast<const T*>(row.h_before) + j, lanes);
        const VecF dh = GradOfH<T>(row, j, lanes);
        const VecF dn = dh * (one - z) * NegFma(candidate, candidate, one);
        const VecF dr = dn * LoadN(kept + 3 * n + j, lanes) * SigmoidSlope(r);
        const VecF dz = dh * (before - candidate) * SigmoidSlope(z);
        StoreN(dp + j, dr, lanes);
        StoreN(dp + n + j, dz, lanes);
        StoreN(dp + 2 * n + j, dn, lanes);
        StoreN(dq + j, dr, lanes);
        StoreN(dq + n + j, dz, lanes);
        StoreN(dq + 2 * n + j, dn * r, lanes);
        StoreN(row.dh + j, dh * z, lanes);
      });
}

template <typename T>
void BackwardTyped(const RecurrentGradRow& row) {
  switch (row.cell) {
    case RecurrentCell::kTanh:
    case RecurrentCell::kRelu:
      return PlainGrad<T>(row);
    case RecurrentCell::kLstm:
      return LstmGrad<T>(row);
    case RecurrentCell::kGru:
      return GruGrad<T>(row);
  }
}

void Forward(const RecurrentRow& row) {
  DispatchRow(row.type, [&](auto type) { ForwardTyped<decltype(type)>(row); });
}

void Backward(const RecurrentGradRow& row) {
  DispatchRow(row.type, [&](auto type) { BackwardTyped<decltype(type)>(row); });
}

}  // namespace

extern const RecurrentRows kRecurrentRows;
const RecurrentRows kRecurrentRows = {Forward, Backward};

}  // namespace tessera::TESSERA_ISA
