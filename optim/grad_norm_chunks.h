// SPDX-License-Identifier: Apache-2.0
// Sums and scaling of a run of gradient elements, compiled once per instruction set. Raw pointers
// only.
#ifndef TESSERA_OPTIM_GRAD_NORM_CHUNKS_H_
#define TESSERA_OPTIM_GRAD_NORM_CHUNKS_H_

#include <cstdint>

namespace tessera::optim {

enum class GradType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64 };

// The functions of one instruction set.
struct GradChunks {
  // The sum of squares in float64. The same bits from every instruction set: element i is added to
  // partial sum i % 16, and those are joined by halves (k with k + 8, then k + 4, ...).
  double (*square_sum)(GradType type, const void* x, int64_t n);
  // x *= factor, in float32 (float64 for float64).
  void (*scale)(GradType type, void* x, int64_t n, double factor);
};

namespace baseline {
extern const GradChunks kGradChunks;
}
namespace avx2 {
extern const GradChunks kGradChunks;
}
namespace avx512 {
extern const GradChunks kGradChunks;
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_GRAD_NORM_CHUNKS_H_
