// Softmax of one row, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPS_SOFTMAX_SOFTMAX_ROWS_H_
#define TESSERA_OPS_SOFTMAX_SOFTMAX_ROWS_H_

#include <cstdint>

namespace tessera {

enum class SoftmaxType : uint8_t { kFloat32, kBFloat16, kFloat16 };

struct SoftmaxRows {
  // y = softmax(x), or its logarithm; "=". n >= 1.
  void (*forward)(SoftmaxType type, bool log, const void* x, void* y, int64_t n);
  // dx from the result y and its gradient dy; "=".
  void (*backward)(SoftmaxType type, bool log, const void* y, const void* dy, void* dx, int64_t n);
};

namespace baseline {
extern const SoftmaxRows kSoftmaxRows;
}
namespace avx2 {
extern const SoftmaxRows kSoftmaxRows;
}
namespace avx512 {
extern const SoftmaxRows kSoftmaxRows;
}

}  // namespace tessera

#endif  // TESSERA_OPS_SOFTMAX_SOFTMAX_ROWS_H_
