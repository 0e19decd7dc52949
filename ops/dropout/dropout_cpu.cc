// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/every_isa.h"
#include "core/cpu_isa.h"
#include "core/strided_loop.h"
#include "ops/dropout/dropout_kernel.h"
#include "ops/dropout/dropout_rows.h"

namespace tessera {
namespace {

constexpr IsaTable<void(const DropoutRow&)> kDropRow{TESSERA_FOR_EVERY_ISA(DropRow)};

DropoutType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return DropoutType::kBFloat16;
    case DType::kFloat16:
      return DropoutType::kFloat16;
    case DType::kFloat64:
      return DropoutType::kFloat64;
    default:
      return DropoutType::kFloat32;
  }
}

void DropoutCpu(const DropoutArgs& args) {
  // The unsharded tensor takes part as an operand, so that rows end where its indices jump.
  const StridedLoop<2> loop(args.shape, {ContiguousStrides(args.shape), args.global_strides});
  const auto drop = kDropRow.Select();
  const auto element = static_cast<int64_t>(DTypeSize(args.dtype));
  const DropoutRow whole{
      TypeOf(args.dtype),   args.key.hi, args.key.lo, 0,      static_cast<float>(args.p),
      1.0 / (1.0 - args.p), 0,           nullptr,     nullptr};
  // The last dim is unsharded or a contiguous part: its indices are adjacent unless it has size 1.
  const int64_t index_stride = loop.inner_stride(1);
  loop.ForEachRow([&](const auto& offset, int64_t n) {
    DropoutRow row = whole;
    const int64_t step = index_stride == 1 ? n : 1;
    for (int64_t i = 0; i < n; i += step) {
      row.index = static_cast<uint64_t>(args.global_offset + offset[1] + i * index_stride);
      row.n = step;
      row.x = static_cast<const char*>(args.x) + (offset[0] + i) * element;
      row.out = static_cast<char*>(args.out) + (offset[0] + i) * element;
      drop(row);
    }
  });
}

TESSERA_REGISTER_KERNEL(dropout_kernel, DeviceType::kCpu, DropoutCpu);

}  // namespace
}  // namespace tessera
