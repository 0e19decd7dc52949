// SPDX-License-Identifier: Apache-2.0
// One matrix product through cuBLASLt, with an epilogue. The algorithm is measured per shape
// (ops/matmul/algorithm_cache.h): TESSERA_MATMUL_TUNING=off takes the library's own, and
// TESSERA_MATMUL_TUNING=<file> reads the choices there and adds new ones. float32 is float32: TF32
// is off. Partial sums of a split inner dim are added in float32, in a fixed order.
#ifndef TESSERA_OPS_MATMUL_CUBLAS_PRODUCT_H_
#define TESSERA_OPS_MATMUL_CUBLAS_PRODUCT_H_

#include <cublasLt.h>

#include <cstdint>
#include <functional>

#include "core/dtype.h"
#include "ops/matmul/product_layout.h"

namespace tessera::cuda {

// c [batch, m, n] = a b, or c += a b. cuBLASLt sees it column-major: D = X Y with X the
// transposed b and Y the transposed a. Its own names A and B (TRANSA, BGRADA) are X and Y.
struct CublasProduct {
  DType dtype;    // of a and b
  DType c_dtype;  // of c, bias, aux and sums
  int64_t m, n, k;
  int64_t batch;
  const void* a;
  ColumnMajor y;
  int64_t a_batch;
  const void* b;
  ColumnMajor x;
  int64_t b_batch;
  void* c;
  int64_t c_row;  // between rows, those of two matrices of the batch too
  bool accumulate;
  cublasLtEpilogue_t epilogue;
  const void* bias;  // read, or written by an epilogue that sums; 16 bytes aligned
  void* aux;         // [m, n], of an epilogue that has one
};

// On the current stream, with kLibraryWorkspace bytes of workspace. False where cuBLASLt has no
// algorithm for it: then nothing was written. `steps` computes the same without the epilogue; where
// that was measured to take less time, it is false, too.
bool RunCublasProduct(const CublasProduct& product, void* workspace,
                      const std::function<void()>& steps = nullptr);

}  // namespace tessera::cuda

#endif  // TESSERA_OPS_MATMUL_CUBLAS_PRODUCT_H_
