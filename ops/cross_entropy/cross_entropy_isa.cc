// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/cross_entropy/cross_entropy_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

template <typename T>
LogitsStats Stats(const T* x, const float* weights, int64_t n) {
  const VecF lowest = Set(-__builtin_inff());
  VecF max = lowest;
  VecF sum = Zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF v = LoadN(x + i, n - i);
    max = Max(max, n - i >= kLanes ? v : Select(FirstN(n - i), v, lowest));
    sum = sum + (weights == nullptr ? v : v * LoadN(weights + i, n - i));
  }
  LogitsStats stats;
  stats.max = ReduceMax(max);
  stats.weighted_sum = ReduceAdd(sum);
  const VecF shift = Set(stats.max);
  VecF e0 = Zero(), e1 = Zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    e0 = e0 + Exp(Load(x + i) - shift);
    e1 = e1 + Exp(Load(x + i + kLanes) - shift);
  }
  for (; i < n; i += kLanes) {
    const VecF e = Exp(LoadN(x + i, n - i) - shift);
    e0 = e0 + (n - i >= kLanes ? e : Select(FirstN(n - i), e, Zero()));
  }
  stats.sum_exp = ReduceAdd(e0 + e1);
  return stats;
}

template <typename T>
void Gradient(const T* x, const float* weights, int64_t n, float lse, float scale, float uniform,
              T* dx) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF p = Exp(LoadN(x + i, n - i) - Set(lse));
    const VecF w = weights == nullptr ? Set(1.0f) : LoadN(weights + i, n - i);
    StoreN(dx + i, NegFma(Set(uniform), w, Set(scale) * p), n - i);
  }
}

LogitsStats StatsRow(RowType type, const void* x, const float* weights, int64_t n) {
  switch (type) {
    case RowType::kBFloat16:
      return Stats(static_cast<const Bf16*>(x), weights, n);
    case RowType::kFloat16:
      return Stats(static_cast<const F16*>(x), weights, n);
    case RowType::kFloat32:
      break;
  }
  return Stats(static_cast<const float*>(x), weights, n);
}

void GradientRow(RowType type, const void* x, const float* weights, int64_t n, float lse,
                 float scale, float uniform, void* dx) {
  switch (type) {
    case RowType::kFloat32:
      return Gradient(static_cast<const float*>(x), weights, n, lse, scale, uniform,
                      static_cast<float*>(dx));
    case RowType::kBFloat16:
      return Gradient(static_cast<const Bf16*>(x), weights, n, lse, scale, uniform,
                      static_cast<Bf16*>(dx));
    case RowType::kFloat16:
      return Gradient(static_cast<const F16*>(x), weights, n, lse, scale, uniform,
                      static_cast<F16*>(dx));
  }
}

}  // namespace

extern const CrossEntropyRows kCrossEntropyRows;
const CrossEntropyRows kCrossEntropyRows = {StatsRow, GradientRow};

}  // namespace tessera::TESSERA_ISA
