// SPDX-License-Identifier: Apache-2.0
// What a kernel of products with quantised weights is given.
#ifndef TESSERA_OPS_QUANTIZED_QUANTIZED_KERNEL_H_
#define TESSERA_OPS_QUANTIZED_QUANTIZED_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "ops/quantized/quant_type.h"

namespace tessera {

// y = x w^T (+ bias), "=". x [rows, columns], bias [outputs] or nullptr and y [rows, outputs] are
// contiguous and of `dtype`: float32, bfloat16 or float16.
struct QuantizedLinearArgs {
  QuantType type;
  DType dtype;
  int64_t rows;
  int64_t columns;
  int64_t outputs;
  int64_t row_bytes;
  const void* x;
  const uint8_t* w;  // [outputs, row_bytes]
  const void* bias;
  void* y;
};

inline KernelWork WorkOf(const QuantizedLinearArgs& args) {
  return {.flops = 2.0 * static_cast<double>(args.rows) * static_cast<double>(args.columns) *
                   static_cast<double>(args.outputs),
          .bytes = static_cast<double>(args.outputs * args.row_bytes) +
                   BytesOfElements(args.dtype, args.rows * (args.columns + args.outputs))};
}

inline KernelTable<QuantizedLinearArgs> quantized_linear_kernel{"quantized linear"};

}  // namespace tessera

#endif  // TESSERA_OPS_QUANTIZED_QUANTIZED_KERNEL_H_
