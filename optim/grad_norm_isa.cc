// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "optim/grad_norm_chunks.h"
#include "optim/square_sum_simd.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

template <typename T>
double SquareSum(const T* x, int64_t n) {
  double sums[kPartials] = {};
  int64_t i = 0;
  for (; i + kPartials <= n; i += kPartials) AddSquares(sums, x + i);
  if (i < n) {
    T rest[kPartials] = {};
    for (int64_t k = 0; k < n - i; ++k) rest[k] = x[i + k];
    AddSquares(sums, rest);
  }
  return JoinPartials(sums);
}

double SquareSumAny(GradType type, const void* x, int64_t n) {
  switch (type) {
    case GradType::kFloat32:
      return SquareSum(static_cast<const float*>(x), n);
    case GradType::kBFloat16:
      return SquareSum(static_cast<const Bf16*>(x), n);
    case GradType::kFloat16:
      return SquareSum(static_cast<const F16*>(x), n);
    case GradType::kFloat64:
      return SquareSum(static_cast<const double*>(x), n);
  }
  return 0;
}

template <typename T>
void Scale(T* x, int64_t n, float factor) {
  ForEachVector(
      n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        StoreN(x + i, LoadN(x + i, lanes) * Set(factor), lanes);
      });
}

void ScaleAny(GradType type, void* x, int64_t n, double factor) {
  switch (type) {
    case GradType::kFloat32:
      return Scale(static_cast<float*>(x), n, static_cast<float>(factor));
    case GradType::kBFloat16:
      return Scale(static_cast<Bf16*>(x), n, static_cast<float>(factor));
    case GradType::kFloat16:
      return Scale(static_cast<F16*>(x), n, static_cast<float>(factor));
    case GradType::kFloat64:
      for (int64_t i = 0; i < n; ++i) static_cast<double*>(x)[i] *= factor;
      return;
  }
}

}  // namespace

extern const GradChunks kGradChunks;
const GradChunks kGradChunks = {SquareSumAny, ScaleAny};

}  // namespace tessera::optim::TESSERA_ISA
