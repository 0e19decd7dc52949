// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/row_dispatch.h"
#include "core/cpu/simd.h"
#include "ops/recurrent/cell_formulas.h"
#include "ops/recurrent/recurrent_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

// Some lanes of a row; gate k begins k * hidden elements on.
template <typename T>
struct Gates {
  const T* row;
  int64_t hidden;
  int64_t lanes;
  __attribute__((always_inline)) VecF operator()(int gate) const {
    return LoadN(row + gate * hidden, lanes);
  }
};
template <typename T>
Gates(const T*, int64_t, int64_t) -> Gates<T>;

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
        const auto v = formula::LstmStep(Gates{p + j, n, lanes}, Gates{q + j, n, lanes},
                                         LoadN(row.c_before + j, lanes));
        StoreN(row.c + j, v.c, lanes);
        StoreN(static_cast<T*>(row.h) + j, v.h, lanes);
        if (kept == nullptr) return;
        StoreN(kept + j, v.i, lanes);
        StoreN(kept + n + j, v.f, lanes);
        StoreN(kept + 2 * n + j, v.g, lanes);
        StoreN(kept + 3 * n + j, v.o, lanes);
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
        const auto v = formula::GruStep(Gates{p + j, n, lanes}, Gates{q + j, n, lanes},
                                        LoadN(static_cast<const T*>(row.h_before) + j, lanes));
        StoreN(static_cast<T*>(row.h) + j, v.h, lanes);
        if (kept == nullptr) return;
        StoreN(kept + j, v.r, lanes);
        StoreN(kept + n + j, v.z, lanes);
        StoreN(kept + 2 * n + j, v.n, lanes);
        StoreN(kept + 3 * n + j, v.qn, lanes);
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
        const VecF d = relu ? Select(h > Zero(), dh, Zero()) : dh * formula::TanhSlope(h);
        StoreN(static_cast<T*>(row.d_projected) + i, d, lanes);
        StoreN(row.dh + i, Zero(), lanes);
      });
}

template <typename T>
void LstmGrad(const RecurrentGradRow& row) {
  const int64_t n = row.hidden;
  const T* kept = static_cast<const T*>(row.kept);
  T* d = static_cast<T*>(row.d_projected);
  ForEachVector(
      n, [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
        const Gates of_kept{kept + j, n, lanes};
        VecF dc = LoadN(row.dc + j, lanes);
        VecF d_gates[4];
        formula::LstmGrad<VecF>(
            {of_kept(0), of_kept(1), of_kept(2), of_kept(3), LoadN(row.c + j, lanes), Zero()},
            LoadN(row.c_before + j, lanes), GradOfH<T>(row, j, lanes), &dc, d_gates);
        for (int k = 0; k < 4; ++k) StoreN(d + k * n + j, d_gates[k], lanes);
        StoreN(row.dc + j, dc, lanes);
        StoreN(row.dh + j, Zero(), lanes);
      });
}

template <typename T>
void GruGrad(const RecurrentGradRow& row) {
  const int64_t n = row.hidden;
  const T* kept = static_cast<const T*>(row.kept);
  T* dp = static_cast<T*>(row.d_projected);
  T* dq = static_cast<T*>(row.d_recurrent);
  ForEachVector(
      n, [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
        const Gates of_kept{kept + j, n, lanes};
        const VecF dh = GradOfH<T>(row, j, lanes);
        const formula::GruValues<VecF> v = {of_kept(0), of_kept(1), of_kept(2), of_kept(3), Zero()};
        VecF d_gates[3];
        formula::GruGrad(v, LoadN(static_cast<const T*>(row.h_before) + j, lanes), dh, d_gates);
        for (int k = 0; k < 3; ++k) {
          StoreN(dp + k * n + j, d_gates[k], lanes);
          StoreN(dq + k * n + j, k == 2 ? d_gates[k] * v.r : d_gates[k], lanes);
        }
        StoreN(row.dh + j, dh * v.z, lanes);
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
