// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/cpu/row_kernels.h"
#include "core/cpu/scratch.h"
#include "core/thread_pool.h"
#include "ops/quantized/quantized_kernel.h"
#include "ops/quantized/quantized_rows.h"
#include "ops/quantized/rows_in_use.h"

namespace tessera {
namespace {

// Outputs that a thread takes at a time: a long way through the memory, and results of all rows
// that stay in its second cache.
constexpr int64_t kLeastOutputs = 32;
constexpr int64_t kMostOutputs = 256;
// Multiply-adds below which another thread costs more than it brings.
constexpr int64_t kSerialProducts = 128 * 1024;
constexpr int64_t kQuantizedAtOnce = 16 * 1024;

constinit thread_local ThreadScratch q_scratch;
constinit thread_local ThreadScratch offset_scratch;
constinit thread_local ThreadScratch scale_scratch;
constinit thread_local ThreadScratch sums_scratch;

// The rows of x as integers, in memory of this thread.
QuantizedActivations QuantizeRows(const QuantizedLinearArgs& args, const QuantizedRows& kernels) {
  const int64_t groups = 2 * QuantPairs(args.columns);
  const int64_t all = args.rows * groups;
  int8_t* const q = q_scratch.Get<int8_t>(2 * all * kQuantGroup);
  const QuantizedActivations x = {q, q + all * kQuantGroup, offset_scratch.Get<int32_t>(2 * all),
                                  scale_scratch.Get<float>(all)};
  const int64_t row_bytes = args.columns * static_cast<int64_t>(DTypeSize(args.dtype));
  const int64_t at_once =
      std::max<int64_t>(1, kQuantizedAtOnce / std::max<int64_t>(1, args.columns));
  ParallelFor(args.rows, at_once, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      kernels.quantize(args.type, RowTypeOf(args.dtype),
                       static_cast<const char*>(args.x) + i * row_bytes, args.columns,
                       x.Row(i, groups));
    }
  });
  return x;
}

void QuantizedLinearCpu(const QuantizedLinearArgs& args) {
  if (args.rows == 0 || args.outputs == 0) return;
  const QuantizedRows& kernels = QuantizedRowsInUse();
  const QuantizedActivations x = QuantizeRows(args, kernels);
  const RowType type = RowTypeOf(args.dtype);
  const auto size = static_cast<int64_t>(DTypeSize(args.dtype));
  const bool serial = args.rows * args.outputs * args.columns < kSerialProducts;
  const int64_t share = (args.outputs / (4 * NumThreads()) + kLeastOutputs) & -kLeastOutputs;
  ParallelFor(args.outputs, serial ? args.outputs : std::min(share, kMostOutputs),
              [&](int64_t begin, int64_t end) {
                const int64_t n = end - begin;
                float* const sums = sums_scratch.Get<float>(args.rows * (kQuantLanes + n));
                float* const y = sums + args.rows * kQuantLanes;
                kernels.product(args.type, args.w + begin * args.row_bytes, args.row_bytes, n,
                                args.columns, x, args.rows, sums, y, n);
                const char* const bias = static_cast<const char*>(args.bias);
                for (int64_t i = 0; i < args.rows; ++i) {
                  kernels.finish(type, y + i * n, bias == nullptr ? bias : bias + begin * size, n,
                                 static_cast<char*>(args.y) + (i * args.outputs + begin) * size);
                }
              });
}

TESSERA_REGISTER_KERNEL(quantized_linear_kernel, DeviceType::kCpu, QuantizedLinearCpu);

}  // namespace
}  // namespace tessera
