// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/simd.h"
#include "ops/convolution/gather_rows.h"
#include "ops/convolution/stepped_load_simd.h"

namespace tessera::TESSERA_ISA {
namespace {

TESSERA_SIMD void Zeros(int64_t count, float* dst) {
  for (int64_t i = 0; i < count; i += kLanes) StoreN(dst + i, Zero(), count - i);
}

template <typename T>
TESSERA_SIMD void Stepped(const T* src, int64_t step, int64_t count, float* dst) {
  for (int64_t i = 0; i < count; i += kLanes) {
    StoreN(dst + i, LoadStepped(src + i * step, step, count - i), count - i);
  }
}

template <typename T>
void Rows(const GatherRows& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const T* src = static_cast<const T*>(args.src) + r * args.src_stride;
    float* dst = args.dst + r * args.dst_stride;
    for (int64_t i = 0; i < args.run_count; ++i) {
      const GatherRun run = args.runs[i];
      if (run.source == GatherRun::kPadding) {
        Zeros(run.count, dst);
      } else if (args.step == 1) {
        Stepped(src + run.source, 1, run.count, dst);
      } else if (args.step == 2) {
        Stepped(src + run.source, 2, run.count, dst);
      } else {
        Stepped(src + run.source, args.step, run.count, dst);
      }
      dst += run.count;
    }
  }
}

}  // namespace

void Gather(const GatherRows& args) {
  switch (args.type) {
    case RowType::kFloat32:
      return Rows<float>(args);
    case RowType::kBFloat16:
      return Rows<Bf16>(args);
    case RowType::kFloat16:
      return Rows<F16>(args);
  }
}

}  // namespace tessera::TESSERA_ISA
