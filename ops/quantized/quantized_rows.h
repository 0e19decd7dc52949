// SPDX-License-Identifier: Apache-2.0
// What quantized_cpu.cc asks of each instruction set: activations as integers, and their products
// with quantised rows of weights.
//
// Plain pointers only, since quantized_isa.cc includes this header with instruction-set flags.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_ROWS_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_ROWS_H_

#include <cstdint>

#include "core/cpu/row_type.h"
#include "ops/quantized/quant_type.h"

namespace tessera {

// Columns are taken two groups of 32 at a time; what is missing at the end is zeros.
inline constexpr int64_t kQuantGroup = 32;
inline constexpr int64_t kQuantPair = 2 * kQuantGroup;
// No more outputs are taken at a time.
inline constexpr int64_t kQuantLanes = 16;
constexpr int64_t QuantPairs(int64_t columns) { return (columns + kQuantPair - 1) / kQuantPair; }

// An integer of 16 bits as two of 8: v = kQuantUpper * upper + lower, both -127 .. 127.
inline constexpr int32_t kQuantUpper = 255;
inline constexpr int32_t kQuantMost = 127 * kQuantUpper + 127;

// Rows of activations: x = v * scale; kInt8: x = upper * scale. Rows have an even number of groups.
struct QuantizedActivations {
  int8_t* upper;    // [rows, groups, 32]
  int8_t* lower;    // likewise; not of kInt8, which may have none
  int32_t* offset;  // [rows, groups, 2]: what unsigned weights make too much, negative, or with
                    // minima the sum of v; of a group, in the first place, or of its halves where
                    // weights have groups of 16; kInt8: of the row, in its first place
  float* scale;     // [rows, groups]; kInt8: the row's everywhere

  // From column `columns` on, whole groups.
  QuantizedActivations From(int64_t columns) const {
    const int64_t groups = columns / kQuantGroup;
    return {upper + columns, lower + columns, offset + 2 * groups, scale + groups};
  }
  QuantizedActivations Row(int64_t i, int64_t groups) const {
    return From(i * groups * kQuantGroup);
  }
};

// The functions of one instruction set.
struct QuantizedRows {
  // One row of x. scale = max |x| / kQuantMost of a group (kInt8: max |x| / 127 of the row), NaN
  // where x is not finite; v = x / scale, rounded to nearest even.
  void (*quantize)(QuantType type, RowType row_type, const void* x, int64_t columns,
                   const QuantizedActivations& to);

  // y[i * y_stride + j] = x[i] . w[j] for i < rows, j < outputs, "="; see quantized_matrix.h for
  // the order of sums, which are kept in `sums` [rows, kQuantLanes] meanwhile.
  void (*product)(QuantType type, const uint8_t* w, int64_t row_bytes, int64_t outputs,
                  int64_t columns, const QuantizedActivations& x, int64_t rows, float* sums,
                  float* y, int64_t y_stride);

  // out[j] = y[j] + bias[j]; bias, of the type of out, may be nullptr.
  void (*finish)(RowType row_type, const float* y, const void* bias, int64_t n, void* out);
};

#if defined(__aarch64__)
namespace neon {
extern const QuantizedRows kQuantizedRows;
}  // namespace neon
namespace neondot {
extern const QuantizedRows kQuantizedRows;
}  // namespace neondot
#else
namespace baseline {
extern const QuantizedRows kQuantizedRows;
}  // namespace baseline
namespace avx2 {
extern const QuantizedRows kQuantizedRows;
}  // namespace avx2
namespace avx512vnni {
extern const QuantizedRows kQuantizedRows;
}  // namespace avx512vnni
#endif

}  // namespace tessera

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_ROWS_H_
