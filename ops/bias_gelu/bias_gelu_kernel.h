// What the kernels of gelu(x + bias) are given: contiguous matrices [rows, n].
#ifndef TESSERA_OPS_BIAS_GELU_BIAS_GELU_KERNEL_H_
#define TESSERA_OPS_BIAS_GELU_BIAS_GELU_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

struct BiasGeluArgs {
  DType dtype;
  bool tanh;  // the approximation by tanh
  int64_t rows;
  int64_t n;
  const void* x;
  const void* bias;  // [n]
  void* y;           // "="
};

struct BiasGeluGradArgs {
  DType dtype;
  bool tanh;
  int64_t rows;
  int64_t n;
  const void* x;
  const void* bias;
  const void* dy;
  void* dx;  // "="
};

inline KernelTable<BiasGeluArgs> bias_gelu_forward{"bias_gelu"};
inline KernelTable<BiasGeluGradArgs> bias_gelu_backward{"bias_gelu gradient"};

}  // namespace tessera

#endif  // TESSERA_OPS_BIAS_GELU_BIAS_GELU_KERNEL_H_
