// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/norm/norm_rows.h"

namespace tessera::TESSERA_ISA {
namespace {

// Lanes past the end of the row count nothing.
TESSERA_SIMD VecF Valid(VecF v, int64_t lanes) {
  return lanes >= kLanes ? v : Select(FirstN(lanes), v, Zero());
}

template <typename T>
void Forward(const NormRow& r) {
  const T* x = static_cast<const T*>(r.x);
  if (r.residual != nullptr) {
    const T* residual = static_cast<const T*>(r.residual);
    T* sum = static_cast<T*>(r.sum);
    ForEachVector(
        r.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
          StoreN(sum + i, LoadN(x + i, lanes) + LoadN(residual + i, lanes), lanes);
        });
    x = sum;
  }
  const float inverse_n = 1.0f / static_cast<float>(r.n);
  float mean = 0;
  if (r.centered) {
    VecF s = Zero();
    ForEachVector(
        r.n, [&](int64_t i, int64_t lanes)
                 __attribute__((always_inline)) { s = s + LoadN(x + i, lanes); });
    mean = ReduceAdd(s) * inverse_n;
    *r.mean = mean;
  }
  VecF squares = Zero();
  ForEachVector(
      r.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF d = Valid(LoadN(x + i, lanes) - Set(mean), lanes);
        squares = Fma(d, d, squares);
      });
  const float variance = ReduceAdd(squares) * inverse_n;
  const VecF rstd = Set(1.0f) / Sqrt(Set(variance + r.eps));
  *r.rstd = rstd.v[0];
  const T* weight = static_cast<const T*>(r.weight);
  const T* bias = static_cast<const T*>(r.bias);
  const VecF offset = Set(r.weight_offset);
  T* y = static_cast<T*>(r.y);
  ForEachVector(
      r.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        VecF v = (LoadN(x + i, lanes) - Set(mean)) * rstd;
        if (weight != nullptr) v = v * (LoadN(weight + i, lanes) + offset);
        if (bias != nullptr) v = v + LoadN(bias + i, lanes);
        StoreN(y + i, v, lanes);
      });
}

// With g = dy * (weight + weight_offset) and h the normalised row: dx = rstd (g - mean(g) - h
// mean(g h)), where mean(g) is left out by RmsNorm.
template <typename T>
void Backward(const NormGradRow& r) {
  const T* x = static_cast<const T*>(r.x);
  const T* dy = static_cast<const T*>(r.dy);
  const T* weight = static_cast<const T*>(r.weight);
  const VecF mean = Set(r.mean);
  const VecF rstd = Set(r.rstd);
  const VecF offset = Set(r.weight_offset);
  VecF sum_g = Zero();
  VecF sum_gh = Zero();
  ForEachVector(
      r.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF h = Valid((LoadN(x + i, lanes) - mean) * rstd, lanes);
        const VecF d = LoadN(dy + i, lanes);
        const VecF g = weight != nullptr ? d * (LoadN(weight + i, lanes) + offset) : d;
        sum_g = sum_g + g;
        sum_gh = Fma(g, h, sum_gh);
        if (r.dweight != nullptr) {
          StoreN(r.dweight + i, Fma(d, h, LoadN(r.dweight + i, lanes)), lanes);
        }
        if (r.dbias != nullptr) StoreN(r.dbias + i, d + LoadN(r.dbias + i, lanes), lanes);
      });
  if (r.dx == nullptr) return;
  const float inverse_n = 1.0f / static_cast<float>(r.n);
  const VecF mean_g = r.centered ? Set(ReduceAdd(sum_g) * inverse_n) : Zero();
  const VecF mean_gh = Set(ReduceAdd(sum_gh) * inverse_n);
  const T* dsum = static_cast<const T*>(r.dsum);
  T* dx = static_cast<T*>(r.dx);
  ForEachVector(
      r.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF h = (LoadN(x + i, lanes) - mean) * rstd;
        VecF g = LoadN(dy + i, lanes);
        if (weight != nullptr) g = g * (LoadN(weight + i, lanes) + offset);
        VecF d = rstd * NegFma(h, mean_gh, g - mean_g);
        if (dsum != nullptr) d = d + LoadN(dsum + i, lanes);
        StoreN(dx + i, d, lanes);
      });
}

void ForwardRow(const NormRow& row) {
  switch (row.type) {
    case RowType::kFloat32:
      return Forward<float>(row);
    case RowType::kBFloat16:
      return Forward<Bf16>(row);
    case RowType::kFloat16:
      return Forward<F16>(row);
  }
}

void BackwardRow(const NormGradRow& row) {
  switch (row.type) {
    case RowType::kFloat32:
      return Backward<float>(row);
    case RowType::kBFloat16:
      return Backward<Bf16>(row);
    case RowType::kFloat16:
      return Backward<F16>(row);
  }
}

}  // namespace

extern const NormRows kNormRows;
const NormRows kNormRows = {ForwardRow, BackwardRow};

}  // namespace tessera::TESSERA_ISA
