// What a matrix product kernel is given.
#ifndef TESSERA_OPS_MATMUL_MATMUL_KERNEL_H_
#define TESSERA_OPS_MATMUL_MATMUL_KERNEL_H_

#include <cstdint>

#include "core/kernel_table.h"
#include "core/tensor.h"

namespace tessera {

// c = a b (+ bias), written with "=", for every index of `batch`. Strides count elements; those of
// the batch are 0 where an operand repeats. c is contiguous: [batch..., m, n].
struct MatmulArgs {
  int64_t m;
  int64_t n;
  int64_t k;
  DType dtype;    // of a and b
  DType c_dtype;  // dtype or, for half precision, float32
  const void* a;
  int64_t a_row_stride;
  int64_t a_col_stride;
  const void* b;
  int64_t b_row_stride;
  int64_t b_col_stride;
  void* c;
  const void* bias;  // [n] of c_dtype, or nullptr
  Shape batch;
  Shape a_batch_strides;
  Shape b_batch_strides;
};

inline KernelTable<MatmulArgs> matmul_kernel{"matmul"};

}  // namespace tessera

#endif  // TESSERA_OPS_MATMUL_MATMUL_KERNEL_H_
