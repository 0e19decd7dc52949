// SPDX-License-Identifier: Apache-2.0
// Sums and scaling of a run of gradient elements, compiled once per instruction set. Raw pointers
// only.
#ifndef TESSERA_OPTIM_GRAD_NORM_CHUNKS_H_
#define TESSERA_OPTIM_GRAD_NORM_CHUNKS_H_

#include <cstdint>

#include "core/cpu/every_isa.h"

namespace tessera::optim {

inline constexpr int64_t kExactBlock = 1024;
inline constexpr int kMostTerms = 56;

enum class GradType : uint8_t { kFloat32, kBFloat16, kFloat16, kFloat64 };

// The functions of one instruction set.
struct GradChunks {
  // The sum of the squares (in float64) of at most kExactBlock elements, without rounding, as that
  // of a few numbers: how many of `terms` [kMostTerms] were written, or -1 where some square is not
  // finite or so large that sums would not be.
  int (*square_terms)(GradType type, const void* x, int64_t n, double* terms);
  // x *= factor, in float32 (float64 for float64).
  void (*scale)(GradType type, void* x, int64_t n, double factor);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const GradChunks kGradChunks;)

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_GRAD_NORM_CHUNKS_H_
