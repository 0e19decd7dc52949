// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/element.cuh"
#include "core/cuda/launch.h"
#include "ops/matmul/plain_product.h"

namespace tessera::cuda {
namespace {

template <typename T, typename C>
__global__ void PlainKernel(PlainProduct p) {
  const int64_t total = p.batch * p.m * p.n;
  const C* bias = static_cast<const C*>(p.bias);
  for (int64_t x = GridThread(); x < total; x += GridThreads()) {
    const int64_t j = x % p.n;
    const int64_t i = x / p.n % p.m;
    const int64_t batch = x / (p.n * p.m);
    const T* row = static_cast<const T*>(p.a) + batch * p.a_batch + i * p.a_row;
    const T* column = static_cast<const T*>(p.b) + batch * p.b_batch + j * p.b_col;
    Wide<T> sum = bias != nullptr ? static_cast<Wide<T>>(ToWide(bias[j])) : Wide<T>(0);
    for (int64_t k = 0; k < p.k; ++k) {
      sum += ToWide(row[k * p.a_col]) * ToWide(column[k * p.b_row]);
    }
    static_cast<C*>(p.c)[(batch * p.m + i) * p.c_row + j] = FromWide<C>(sum);
  }
}

}  // namespace

void RunPlainProduct(const PlainProduct& p) {
  DispatchCudaFloat(p.dtype, "matmul", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto result) {
      using C = decltype(result);
      Launch("matmul", {GridFor(p.batch * p.m * p.n), kThreads}, PlainKernel<T, C>, p);
    };
    if (p.c_dtype == p.dtype) {
      launch(T{});
    } else if constexpr (kIsHalf<T>) {
      launch(float{});
    } else {
      TESSERA_CHECK(false, "matmul", p.dtype, " into ", p.c_dtype);
    }
  });
}

}  // namespace tessera::cuda
