// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/routed_rows/routed_rows_kernel.h"
#include "ops/routed_rows/routed_rows_rows.h"

namespace tessera {
namespace {

const RoutedRowsRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kRoutedRowsRows)); }

// Tokens that are worth a task.
int64_t Grain(int64_t each, int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, each * width));
}

const char* At(const void* data, int64_t bytes) { return static_cast<const char*>(data) + bytes; }
char* At(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

void CombineFloat64(const CombineRowsArgs& args, int64_t n) {
  const auto* x = static_cast<const double*>(args.x);
  const auto* weights = static_cast<const double*>(args.weights);
  double* out = static_cast<double*>(args.out) + n * args.width;
  std::fill_n(out, args.width, 0.0);
  for (int64_t j = n * args.each; j < (n + 1) * args.each; ++j) {
    if (args.place[j] < 0) continue;
    const double weight = weights == nullptr ? 1.0 : weights[j];
    const double* row = x + args.place[j] * args.width;
    for (int64_t i = 0; i < args.width; ++i) out[i] += weight * row[i];
  }
}

void SpreadFloat64(const SpreadRowsArgs& args, int64_t n) {
  const double* x = static_cast<const double*>(args.x) + n * args.width;
  const auto* weights = static_cast<const double*>(args.weights);
  const auto* with = static_cast<const double*>(args.with);
  auto* d_weights = static_cast<double*>(args.d_weights);
  for (int64_t j = n * args.each; j < (n + 1) * args.each; ++j) {
    if (d_weights != nullptr) d_weights[j] = 0;
    if (args.place[j] < 0) continue;
    const double weight = weights == nullptr ? 1.0 : weights[j];
    const int64_t begin = args.place[j] * args.width;
    double* row = static_cast<double*>(args.rows) + begin;
    for (int64_t i = 0; i < args.width; ++i) row[i] = weight * x[i];
    for (int64_t i = 0; d_weights != nullptr && i < args.width; ++i) {
      d_weights[j] += x[i] * with[begin + i];
    }
  }
}

void CombineCpu(const CombineRowsArgs& args) {
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  const auto* weights = static_cast<const float*>(args.weights);
  ParallelFor(args.tokens, Grain(args.each, args.width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (args.dtype == DType::kFloat64) {
        CombineFloat64(args, n);
        continue;
      }
      Rows().combine(RowTypeOf(args.dtype), args.x, args.place + n * args.each,
                     weights == nullptr ? nullptr : weights + n * args.each, args.each,
                     At(args.out, n * args.width * size), args.width);
    }
  });
}

void SpreadCpu(const SpreadRowsArgs& args) {
  const int64_t bytes = args.width * static_cast<int64_t>(DTypeSize(args.dtype));
  const auto* weights = static_cast<const float*>(args.weights);
  auto* d_weights = static_cast<float*>(args.d_weights);
  ParallelFor(args.tokens, Grain(args.each, args.width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (args.dtype == DType::kFloat64) {
        SpreadFloat64(args, n);
        continue;
      }
      const char* const from = At(args.x, n * bytes);
      for (int64_t j = n * args.each; j < (n + 1) * args.each; ++j) {
        if (d_weights != nullptr) d_weights[j] = 0;
        if (args.place[j] < 0) continue;
        const int64_t place = args.place[j] * bytes;
        if (weights == nullptr) {
          std::memcpy(At(args.rows, place), from, static_cast<size_t>(bytes));
        } else {
          Rows().scale(RowTypeOf(args.dtype), from, weights[j], At(args.rows, place), args.width);
        }
        if (d_weights == nullptr) continue;
        d_weights[j] = Rows().dot(RowTypeOf(args.dtype), from, At(args.with, place), args.width);
      }
    }
  });
}

TESSERA_REGISTER_KERNEL(combine_rows_kernel, DeviceType::kCpu, CombineCpu);
TESSERA_REGISTER_KERNEL(spread_rows_kernel, DeviceType::kCpu, SpreadCpu);

}  // namespace
}  // namespace tessera
