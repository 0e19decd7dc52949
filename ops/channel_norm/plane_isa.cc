// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/row_dispatch.h"
#include "core/cpu/simd.h"
#include "ops/channel_norm/plane_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

// Sums of f(i, lanes) over a row: four chains hide the latency of addition.
template <typename F>
TESSERA_SIMD float SumOf(int64_t n, F f) {
  VecF sums[4] = {Zero(), Zero(), Zero(), Zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) sums[c] = sums[c] + f(i + c * kLanes, kLanes);
  }
  for (; i < n; i += kLanes) sums[0] = sums[0] + f(i, n - i);
  return ReduceAdd((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// Lanes past the end of the row count nothing.
TESSERA_SIMD VecF Valid(VecF v, int64_t lanes) {
  return lanes >= kLanes ? v : Select(FirstN(lanes), v, Zero());
}

template <typename T>
void Moments(int64_t n, const T* x, float* mean, float* squares) {
  const float total = SumOf(
      n, [&](int64_t i, int64_t lanes)
             __attribute__((always_inline)) { return LoadN(x + i, lanes); });
  *mean = total / static_cast<float>(n);
  const VecF center = Set(*mean);
  *squares = SumOf(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF d = Valid(LoadN(x + i, lanes) - center, lanes);
        return d * d;
      });
}

template <typename T>
void Sums(int64_t n, const T* x, const T* z, float center, float* sum, float* product) {
  VecF sums[2] = {Zero(), Zero()};
  VecF products[2] = {Zero(), Zero()};
  const VecF c = Set(center);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      const VecF v = Load(z + i + k * kLanes);
      sums[k] = sums[k] + v;
      products[k] = Fma(v, Load(x + i + k * kLanes) - c, products[k]);
    }
  }
  for (; i < n; i += kLanes) {
    const VecF v = LoadN(z + i, n - i);  // zero past the end
    sums[0] = sums[0] + v;
    products[0] = Fma(v, LoadN(x + i, n - i) - c, products[0]);
  }
  *sum = ReduceAdd(sums[0] + sums[1]);
  *product = ReduceAdd(products[0] + products[1]);
}

template <typename T>
void Affine(const PlaneAffineRow& r) {
  const T* x = static_cast<const T*>(r.x);
  const T* z = static_cast<const T*>(r.z);
  T* out = static_cast<T*>(r.out);
  const VecF a = Set(r.a), b = Set(r.b), center = Set(r.center), d = Set(r.d);
  ForEachVector(
      r.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        VecF v = d;
        if (x != nullptr) v = Fma(b, LoadN(x + i, lanes) - center, v);
        if (z != nullptr) v = Fma(a, LoadN(z + i, lanes), v);
        StoreN(out + i, v, lanes);
      });
}

void MomentsRow(RowType type, int64_t n, const void* x, float* mean, float* squares) {
  DispatchRow(type, [&](auto t) { Moments(n, static_cast<const decltype(t)*>(x), mean, squares); });
}

void SumsRow(RowType type, int64_t n, const void* x, const void* z, float center, float* sum,
             float* product) {
  DispatchRow(type, [&](auto t) {
    using T = decltype(t);
    Sums(n, static_cast<const T*>(x), static_cast<const T*>(z), center, sum, product);
  });
}

void AffineRow(const PlaneAffineRow& row) {
  DispatchRow(row.type, [&](auto t) { Affine<decltype(t)>(row); });
}

}  // namespace

extern const PlaneRows kPlaneRows;
const PlaneRows kPlaneRows = {MomentsRow, SumsRow, AffineRow};

}  // namespace tessera::TESSERA_ISA
