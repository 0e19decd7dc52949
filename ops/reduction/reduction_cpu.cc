// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/reduction/reduction_kernel.h"
#include "ops/reduction/reduction_rows.h"

namespace tessera {
namespace {

// Sums run over chunks of this many elements (inner == 1) or rows, and chunks are added up in
// order, in double: the bits depend on shapes alone.
constexpr int64_t kRowChunk = 16384;
constexpr int64_t kColumnChunk = 128;
constexpr int64_t kColumnBlock = 256;

const SumRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kSumRows)); }

template <typename T>
void SumVectors(const SumArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  const SumRows& rows = Rows();
  const int64_t chunks = (args.count + kRowChunk - 1) / kRowChunk;
  std::vector<double> partial(static_cast<size_t>(args.outer * chunks));
  const int64_t grain = std::max<int64_t>(1, kRowChunk / std::max<int64_t>(args.count, 1));
  ParallelFor(args.outer * chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % chunks * kRowChunk;
      partial[static_cast<size_t>(i)] =
          rows.row(RowTypeOf(args.dtype), x + i / chunks * args.count + first,
                   std::min(kRowChunk, args.count - first));
    }
  });
  for (int64_t o = 0; o < args.outer; ++o) {
    double sum = 0;
    for (int64_t c = 0; c < chunks; ++c) sum += partial[static_cast<size_t>(o * chunks + c)];
    out[o] = T(static_cast<float>(sum));
  }
}

template <typename T>
void SumMatrices(const SumArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  const SumRows& rows = Rows();
  const int64_t blocks = (args.inner + kColumnBlock - 1) / kColumnBlock;
  ParallelFor(args.outer * blocks, 1, [&](int64_t begin, int64_t end) {
    float chunk[kColumnBlock];
    double sum[kColumnBlock];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / blocks;
      const int64_t column = i % blocks * kColumnBlock;
      const int64_t n = std::min(kColumnBlock, args.inner - column);
      const T* block = x + outer * args.count * args.inner + column;
      std::fill(sum, sum + n, 0.0);
      for (int64_t row = 0; row < args.count; row += kColumnChunk) {
        rows.columns(RowTypeOf(args.dtype), block + row * args.inner, args.inner,
                     std::min(kColumnChunk, args.count - row), n, chunk);
        for (int64_t j = 0; j < n; ++j) sum[j] += chunk[j];
      }
      for (int64_t j = 0; j < n; ++j) {
        out[outer * args.inner + column + j] = T(static_cast<float>(sum[j]));
      }
    }
  });
}

template <typename T>
void SumPlain(const SumArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  for (int64_t o = 0; o < args.outer; ++o) {
    for (int64_t j = 0; j < args.inner; ++j) {
      T sum = 0;
      for (int64_t i = 0; i < args.count; ++i) sum += x[(o * args.count + i) * args.inner + j];
      out[o * args.inner + j] = sum;
    }
  }
}

void SumCpu(const SumArgs& args) {
  if (args.dtype == DType::kInt64) return SumPlain<int64_t>(args);
  DispatchFloat(args.dtype, "sum", [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, double>) {
      SumPlain<double>(args);
    } else if (args.inner == 1) {
      SumVectors<T>(args);
    } else {
      SumMatrices<T>(args);
    }
  });
}

template <typename T>
bool IsNanValue(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return std::isnan(static_cast<double>(value));
  }
}

void ExtremeCpu(const ExtremeArgs& args) {
  DispatchAll(args.dtype, "max", [&](auto zero) {
    using T = decltype(zero);
    const T* x = static_cast<const T*>(args.x);
    T* values = static_cast<T*>(args.values);
    const int64_t grain = std::max<int64_t>(1, 8192 / args.count);
    ParallelFor(args.outer * args.inner, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* column = x + i / args.inner * args.count * args.inner + i % args.inner;
        int64_t best = 0;
        for (int64_t k = 1; k < args.count && !IsNanValue(column[best * args.inner]); ++k) {
          const T candidate = column[k * args.inner];
          const T current = column[best * args.inner];
          const bool better = args.largest ? current < candidate : candidate < current;
          if (better || IsNanValue(candidate)) best = k;
        }
        values[i] = column[best * args.inner];
        args.indices[i] = best;
      }
    });
  });
}

TESSERA_REGISTER_KERNEL(sum_kernel, DeviceType::kCpu, SumCpu);
TESSERA_REGISTER_KERNEL(extreme_kernel, DeviceType::kCpu, ExtremeCpu);

}  // namespace
}  // namespace tessera
