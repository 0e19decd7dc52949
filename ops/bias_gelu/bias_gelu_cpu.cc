#include <algorithm>

#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/bias_gelu/bias_gelu_kernel.h"
#include "ops/bias_gelu/bias_gelu_rows.h"
#include "ops/elementwise/gelu_float64.h"

namespace tessera {
namespace {

const BiasGeluRows& Rows() {
  return ForActiveIsa(baseline::kBiasGeluRows, avx2::kBiasGeluRows, avx512::kBiasGeluRows);
}

const void* RowOf(const void* matrix, int64_t i, int64_t n, DType dtype) {
  return static_cast<const char*>(matrix) + i * n * static_cast<int64_t>(DTypeSize(dtype));
}
void* RowOf(void* matrix, int64_t i, int64_t n, DType dtype) {
  return static_cast<char*>(matrix) + i * n * static_cast<int64_t>(DTypeSize(dtype));
}

int64_t RowsAtOnce(int64_t n) { return std::max<int64_t>(1, 8192 / std::max<int64_t>(n, 1)); }

void ForwardDouble(const BiasGeluArgs& args, int64_t begin, int64_t end) {
  const auto* x = static_cast<const double*>(args.x);
  const auto* bias = static_cast<const double*>(args.bias);
  auto* y = static_cast<double*>(args.y);
  for (int64_t i = begin * args.n; i < end * args.n; ++i) {
    const double u = x[i] + bias[i % args.n];
    y[i] = args.tanh ? float64::GeluTanh(u) : float64::Gelu(u);
  }
}

void BackwardDouble(const BiasGeluGradArgs& args, int64_t begin, int64_t end) {
  const auto* x = static_cast<const double*>(args.x);
  const auto* bias = static_cast<const double*>(args.bias);
  const auto* dy = static_cast<const double*>(args.dy);
  auto* dx = static_cast<double*>(args.dx);
  for (int64_t i = begin * args.n; i < end * args.n; ++i) {
    const double u = x[i] + bias[i % args.n];
    dx[i] = args.tanh ? float64::GeluTanhGrad(dy[i], u) : float64::GeluGrad(dy[i], u);
  }
}

void ForwardCpu(const BiasGeluArgs& args) {
  const BiasGeluRows& rows = Rows();
  ParallelFor(args.rows, RowsAtOnce(args.n), [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return ForwardDouble(args, begin, end);
    for (int64_t i = begin; i < end; ++i) {
      rows.forward({RowTypeOf(args.dtype), args.tanh, args.n, RowOf(args.x, i, args.n, args.dtype),
                    args.bias, nullptr, RowOf(args.y, i, args.n, args.dtype)});
    }
  });
}

void BackwardCpu(const BiasGeluGradArgs& args) {
  const BiasGeluRows& rows = Rows();
  ParallelFor(args.rows, RowsAtOnce(args.n), [&](int64_t begin, int64_t end) {
    if (args.dtype == DType::kFloat64) return BackwardDouble(args, begin, end);
    for (int64_t i = begin; i < end; ++i) {
      rows.backward({RowTypeOf(args.dtype), args.tanh, args.n, RowOf(args.x, i, args.n, args.dtype),
                     args.bias, RowOf(args.dy, i, args.n, args.dtype),
                     RowOf(args.dx, i, args.n, args.dtype)});
    }
  });
}

TESSERA_REGISTER_KERNEL(bias_gelu_forward, DeviceType::kCpu, ForwardCpu);
TESSERA_REGISTER_KERNEL(bias_gelu_backward, DeviceType::kCpu, BackwardCpu);

}  // namespace
}  // namespace tessera
