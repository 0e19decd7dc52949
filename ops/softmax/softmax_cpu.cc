// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"
#include "core/thread_pool.h"
#include "ops/softmax/softmax_kernel.h"
#include "ops/softmax/softmax_rows.h"

namespace tessera {
namespace {

const SoftmaxRows& Rows() { return ForActiveIsa(TESSERA_FOR_EVERY_ISA(kSoftmaxRows)); }

void ForwardDouble(bool log, const double* x, double* y, int64_t n) {
  const double max = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - max);
  for (int64_t i = 0; i < n; ++i) {
    y[i] = log ? x[i] - max - std::log(sum) : std::exp(x[i] - max) / sum;
  }
}

void BackwardDouble(bool log, const double* y, const double* dy, double* dx, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += log ? dy[i] : dy[i] * y[i];
  for (int64_t i = 0; i < n; ++i) dx[i] = log ? dy[i] - std::exp(y[i]) * sum : y[i] * (dy[i] - sum);
}

// Calls f(byte offset of the row) for every row.
template <typename Args, typename F>
void EachRow(const Args& args, F f) {
  const int64_t bytes = args.n * static_cast<int64_t>(DTypeSize(args.dtype));
  ParallelFor(args.rows, std::max<int64_t>(1, 8192 / args.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i * bytes);
  });
}

const void* At(const void* p, int64_t bytes) { return static_cast<const char*>(p) + bytes; }
void* At(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }

void ForwardCpu(const SoftmaxArgs& args) {
  const SoftmaxRows& rows = Rows();
  EachRow(args, [&](int64_t row) {
    if (args.dtype == DType::kFloat64) {
      ForwardDouble(args.log, static_cast<const double*>(At(args.x, row)),
                    static_cast<double*>(At(args.y, row)), args.n);
    } else {
      rows.forward(RowTypeOf(args.dtype), args.log, At(args.x, row), At(args.y, row), args.n);
    }
  });
}

void BackwardCpu(const SoftmaxGradArgs& args) {
  const SoftmaxRows& rows = Rows();
  EachRow(args, [&](int64_t row) {
    if (args.dtype == DType::kFloat64) {
      BackwardDouble(args.log, static_cast<const double*>(At(args.y, row)),
                     static_cast<const double*>(At(args.dy, row)),
                     static_cast<double*>(At(args.dx, row)), args.n);
    } else {
      rows.backward(RowTypeOf(args.dtype), args.log, At(args.y, row), At(args.dy, row),
                    At(args.dx, row), args.n);
    }
  });
}

TESSERA_REGISTER_KERNEL(softmax_forward, DeviceType::kCpu, ForwardCpu);
TESSERA_REGISTER_KERNEL(softmax_backward, DeviceType::kCpu, BackwardCpu);

}  // namespace
}  // namespace tessera
