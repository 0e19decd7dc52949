// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/row_dispatch.h"
#include "core/cpu/simd.h"
#include "ops/routed_rows/routed_rows_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename T>
void CombineOf(const T* x, const int64_t* place, const float* weights, int64_t each, T* out,
               int64_t n) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        VecF sum = Set(0.0F);
        for (int64_t j = 0; j < each; ++j) {
          if (place[j] < 0) continue;
          const VecF v = LoadN(x + place[j] * n + i, lanes);
          sum = weights == nullptr ? sum + v : Fma(v, Set(weights[j]), sum);
        }
        StoreN(out + i, sum, lanes);
      });
}

template <typename T>
void ScaleOf(const T* from, float weight, T* to, int64_t n) {
  const VecF factor = Set(weight);
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        StoreN(to + i, LoadN(from + i, lanes) * factor, lanes);
      });
}

template <typename T>
float DotOf(const T* a, const T* b, int64_t n) {
  VecF sum = Set(0.0F);
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        sum = Fma(LoadN(a + i, lanes), LoadN(b + i, lanes), sum);
      });
  return ReduceAdd(sum);
}

void Combine(RowType type, const void* x, const int64_t* place, const float* weights, int64_t each,
             void* out, int64_t n) {
  DispatchRow(
      type, [=](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
        CombineOf(static_cast<const T*>(x), place, weights, each, static_cast<T*>(out), n);
      });
}

void Scale(RowType type, const void* from, float weight, void* to, int64_t n) {
  DispatchRow(
      type, [=](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
        ScaleOf(static_cast<const T*>(from), weight, static_cast<T*>(to), n);
      });
}

float Dot(RowType type, const void* a, const void* b, int64_t n) {
  float sum = 0;
  DispatchRow(
      type, [&](auto zero) __attribute__((always_inline)) {
        using T = decltype(zero);
        sum = DotOf(static_cast<const T*>(a), static_cast<const T*>(b), n);
      });
  return sum;
}

}  // namespace

extern const RoutedRowsRows kRoutedRowsRows;
const RoutedRowsRows kRoutedRowsRows = {Combine, Scale, Dot};

}  // namespace tessera::TESSERA_ISA
