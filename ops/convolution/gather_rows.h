// SPDX-License-Identifier: Apache-2.0
// Gathering what a convolution multiplies, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_CONVOLUTION_GATHER_ROWS_H_
#define TESSERA_OPS_CONVOLUTION_GATHER_ROWS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_type.h"

namespace tessera {

// `count` elements from `source` (an offset into a row's elements; kPadding: zeros) on.
struct GatherRun {
  static constexpr int64_t kPadding = INT64_MIN;
  int64_t source;
  int64_t count;
};

// rows r = 0, 1, ...: dst[r * dst_stride ...] = the runs of src + r * src_stride one behind the
// other, where a run's elements stand `step` apart. "="
struct GatherRows {
  RowType type;
  const void* src;
  int64_t src_stride;
  int64_t step;
  const GatherRun* runs;
  int64_t run_count;
  int64_t rows;
  float* dst;
  int64_t dst_stride;
};

TESSERA_DECLARE_FOR_EVERY_ISA(void Gather(const GatherRows& args);)

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_GATHER_ROWS_H_
