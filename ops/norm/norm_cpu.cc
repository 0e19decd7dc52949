// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/norm/norm_kernel.h"
#include "ops/norm/norm_rows.h"

namespace tessera {
namespace {

const NormRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kNormRows)); }

// Row `i` of a matrix that may be absent.
template <typename P>
P RowOf(P matrix, int64_t i, int64_t n, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<P>>, const char, char>;
  if (matrix == nullptr) return nullptr;
  return static_cast<Byte*>(matrix) + i * n * static_cast<int64_t>(DTypeSize(dtype));
}

void ForwardDouble(const NormArgs& args, int64_t i) {
  const double* x = static_cast<const double*>(args.x) + i * args.n;
  if (args.residual != nullptr) {
    const double* residual = static_cast<const double*>(args.residual) + i * args.n;
    double* sum = static_cast<double*>(args.sum) + i * args.n;
    for (int64_t j = 0; j < args.n; ++j) sum[j] = x[j] + residual[j];
    x = sum;
  }
  const auto n = static_cast<double>(args.n);
  double mean = 0;
  for (int64_t j = 0; args.centered && j < args.n; ++j) mean += x[j] / n;
  double variance = 0;
  for (int64_t j = 0; j < args.n; ++j) variance += (x[j] - mean) * (x[j] - mean) / n;
  const double rstd = 1.0 / std::sqrt(variance + args.eps);
  static_cast<double*>(args.mean)[i] = mean;
  static_cast<double*>(args.rstd)[i] = rstd;
  const auto* weight = static_cast<const double*>(args.weight);
  const auto* bias = static_cast<const double*>(args.bias);
  double* y = static_cast<double*>(args.y) + i * args.n;
  for (int64_t j = 0; j < args.n; ++j) {
    y[j] = (x[j] - mean) * rstd * (weight != nullptr ? weight[j] + args.weight_offset : 1.0) +
           (bias != nullptr ? bias[j] : 0.0);
  }
}

void BackwardDouble(const NormGradArgs& args, int64_t i, double* dweight, double* dbias) {
  const double* x = static_cast<const double*>(args.x) + i * args.n;
  const double* dy = static_cast<const double*>(args.dy) + i * args.n;
  const auto* weight = static_cast<const double*>(args.weight);
  const double mean = static_cast<const double*>(args.mean)[i];
  const double rstd = static_cast<const double*>(args.rstd)[i];
  const auto n = static_cast<double>(args.n);
  double mean_g = 0;
  double mean_gh = 0;
  for (int64_t j = 0; j < args.n; ++j) {
    const double h = (x[j] - mean) * rstd;
    const double g = dy[j] * (weight != nullptr ? weight[j] + args.weight_offset : 1.0);
    if (args.centered) mean_g += g / n;
    mean_gh += g * h / n;
    if (dweight != nullptr) dweight[j] += dy[j] * h;
    if (dbias != nullptr) dbias[j] += dy[j];
  }
  if (args.dx == nullptr) return;
  double* dx = static_cast<double*>(args.dx) + i * args.n;
  for (int64_t j = 0; j < args.n; ++j) {
    const double h = (x[j] - mean) * rstd;
    const double g = dy[j] * (weight != nullptr ? weight[j] + args.weight_offset : 1.0);
    dx[j] = rstd * (g - mean_g - h * mean_gh);
    if (args.dsum != nullptr) dx[j] += static_cast<const double*>(args.dsum)[i * args.n + j];
  }
}

void ForwardCpu(const NormArgs& args) {
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(args.n, 1));
  const NormRows& rows = Rows();
  ParallelFor(args.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (args.dtype == DType::kFloat64) {
        ForwardDouble(args, i);
        continue;
      }
      rows.forward({RowTypeOf(args.dtype), args.centered, args.n, static_cast<float>(args.eps),
                    RowOf(args.x, i, args.n, args.dtype),
                    RowOf(args.residual, i, args.n, args.dtype), args.weight,
                    static_cast<float>(args.weight_offset), args.bias,
                    RowOf(args.sum, i, args.n, args.dtype), RowOf(args.y, i, args.n, args.dtype),
                    static_cast<float*>(args.mean) + i, static_cast<float*>(args.rstd) + i});
    }
  });
}

void BackwardCpu(const NormGradArgs& args) {
  const NormRows& rows = Rows();
  const DType sum_dtype = AccumulateDType(args.dtype);
  const size_t row_bytes = static_cast<size_t>(args.n) * DTypeSize(sum_dtype);
  const auto chunk_of = [&](int64_t chunk) {
    const auto [begin, end] = args.chunks.RowsOf(chunk);
    void* dweight = RowOf(args.dweight_partial, chunk, args.n, sum_dtype);
    void* dbias = RowOf(args.dbias_partial, chunk, args.n, sum_dtype);
    if (dweight != nullptr) std::fill_n(static_cast<char*>(dweight), row_bytes, 0);
    if (dbias != nullptr) std::fill_n(static_cast<char*>(dbias), row_bytes, 0);
    for (int64_t i = begin; i < end; ++i) {
      if (args.dtype == DType::kFloat64) {
        BackwardDouble(args, i, static_cast<double*>(dweight), static_cast<double*>(dbias));
        continue;
      }
      rows.backward({RowTypeOf(args.dtype), args.centered, args.n,
                     RowOf(args.x, i, args.n, args.dtype), args.weight,
                     static_cast<float>(args.weight_offset), RowOf(args.dy, i, args.n, args.dtype),
                     RowOf(args.dsum, i, args.n, args.dtype),
                     args.centered ? static_cast<const float*>(args.mean)[i] : 0.0f,
                     static_cast<const float*>(args.rstd)[i], RowOf(args.dx, i, args.n, args.dtype),
                     static_cast<float*>(dweight), static_cast<float*>(dbias)});
    }
  };
  ParallelFor(args.chunks.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) chunk_of(chunk);
  });
}

TESSERA_REGISTER_KERNEL(norm_forward, DeviceType::kCpu, ForwardCpu);
TESSERA_REGISTER_KERNEL(norm_backward, DeviceType::kCpu, BackwardCpu);

}  // namespace
}  // namespace tessera
