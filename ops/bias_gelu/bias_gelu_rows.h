// gelu(x + bias) on one row, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_BIAS_GELU_BIAS_GELU_ROWS_H_
#define TESSERA_OPS_BIAS_GELU_BIAS_GELU_ROWS_H_

#include <cstdint>

#include "core/cpu/row_type.h"

namespace tessera {

struct BiasGeluRow {
  RowType type;
  bool tanh;
  int64_t n;
  const void* x;
  const void* bias;
  const void* dy;  // backward only
  void* out;       // y forward, dx backward; "="
};

struct BiasGeluRows {
  void (*forward)(const BiasGeluRow& row);
  void (*backward)(const BiasGeluRow& row);
};

namespace baseline {
extern const BiasGeluRows kBiasGeluRows;
}
namespace avx2 {
extern const BiasGeluRows kBiasGeluRows;
}
namespace avx512 {
extern const BiasGeluRows kBiasGeluRows;
}

}  // namespace tessera

#endif  // TESSERA_OPS_BIAS_GELU_BIAS_GELU_ROWS_H_
