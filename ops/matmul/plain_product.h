// SPDX-License-Identifier: Apache-2.0
// Products that cuBLASLt does not take, on the GPU: a thread per element.
#ifndef TESSERA_OPS_MATMUL_PLAIN_PRODUCT_H_
#define TESSERA_OPS_MATMUL_PLAIN_PRODUCT_H_

#include <cstdint>

#include "core/dtype.h"

namespace tessera::cuda {

// c [batch, m, n] = a b (+ bias), "="; strides count elements and may be anything.
// Summed in order of k, in float32 (float64 for float64).
struct PlainProduct {
  DType dtype;
  DType c_dtype;  // dtype or float32
  int64_t m, n, k, batch;
  int64_t a_row, a_col, a_batch;
  int64_t b_row, b_col, b_batch;
  const void* a;
  const void* b;
  const void* bias;  // [n] of c_dtype, or nullptr
  void* c;
  int64_t c_row;  // between rows, those of two matrices of the batch too
};

// On the current stream.
void RunPlainProduct(const PlainProduct& product);

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_MATMUL_PLAIN_PRODUCT_H_
