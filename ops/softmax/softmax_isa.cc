// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/softmax/softmax_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

// Lanes past the end of the row count `other`.
TESSERA_SIMD VecF Valid(VecF v, int64_t lanes, VecF other) {
  return lanes >= kLanes ? v : Select(FirstN(lanes), v, other);
}

template <typename T>
void Forward(bool log, const T* x, T* y, int64_t n) {
  const VecF lowest = Set(-__builtin_inff());
  VecF max = lowest;
  for (int64_t i = 0; i < n; i += kLanes) max = Max(max, Valid(LoadN(x + i, n - i), n - i, lowest));
  const VecF shift = Set(ReduceMax(max));
  VecF sum = Zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    sum = sum + Valid(Exp(LoadN(x + i, n - i) - shift), n - i, Zero());
  }
  const VecF total = Set(ReduceAdd(sum));
  if (log) {
    const VecF lse = shift + Log(total);
    for (int64_t i = 0; i < n; i += kLanes) StoreN(y + i, LoadN(x + i, n - i) - lse, n - i);
  } else {
    const VecF scale = Set(1.0f) / total;
    for (int64_t i = 0; i < n; i += kLanes) {
      StoreN(y + i, Exp(LoadN(x + i, n - i) - shift) * scale, n - i);
    }
  }
}

// Softmax: dx = y (dy - sum(y dy)). Its logarithm: dx = dy - exp(y) sum(dy).
template <typename T>
void Backward(bool log, const T* y, const T* dy, T* dx, int64_t n) {
  VecF sum = Zero();
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF g = LoadN(dy + i, n - i);
    sum = log ? sum + g : Fma(g, LoadN(y + i, n - i), sum);
  }
  const VecF total = Set(ReduceAdd(sum));
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF g = LoadN(dy + i, n - i);
    const VecF v = LoadN(y + i, n - i);
    StoreN(dx + i, log ? NegFma(Exp(v), total, g) : v * (g - total), n - i);
  }
}

void ForwardRow(RowType type, bool log, const void* x, void* y, int64_t n) {
  switch (type) {
    case RowType::kFloat32:
      return Forward(log, static_cast<const float*>(x), static_cast<float*>(y), n);
    case RowType::kBFloat16:
      return Forward(log, static_cast<const Bf16*>(x), static_cast<Bf16*>(y), n);
    case RowType::kFloat16:
      return Forward(log, static_cast<const F16*>(x), static_cast<F16*>(y), n);
  }
}

void BackwardRow(RowType type, bool log, const void* y, const void* dy, void* dx, int64_t n) {
  switch (type) {
    case RowType::kFloat32:
      return Backward(log, static_cast<const float*>(y), static_cast<const float*>(dy),
                      static_cast<float*>(dx), n);
    case RowType::kBFloat16:
      return Backward(log, static_cast<const Bf16*>(y), static_cast<const Bf16*>(dy),
                      static_cast<Bf16*>(dx), n);
    case RowType::kFloat16:
      return Backward(log, static_cast<const F16*>(y), static_cast<const F16*>(dy),
                      static_cast<F16*>(dx), n);
  }
}

}  // namespace

extern const SoftmaxRows kSoftmaxRows;
const SoftmaxRows kSoftmaxRows = {ForwardRow, BackwardRow};

}  // namespace tessera::TESSERA_ISA
