// SPDX-License-Identifier: Apache-2.0
// LAMB over a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_
#define TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_

#include "optim/lamb/lamb_update.h"
#include "optim/update_chunks.h"

namespace tessera::optim {

struct LambChunk {
  UpdateChunk base;  // its lr is of LambRate
  LambUpdate rule;
  LambUpdate::Step step;
};

// LambMoments: the moments of the gradients;  sums = {sum of w^2, sum of u^2}, "="
// LambApply:   w -= lr * u
namespace baseline {
void LambMoments(const LambChunk& chunk, double* sums);
void LambApply(const LambChunk& chunk);
}  // namespace baseline
namespace avx2 {
void LambMoments(const LambChunk& chunk, double* sums);
void LambApply(const LambChunk& chunk);
}  // namespace avx2
namespace avx512 {
void LambMoments(const LambChunk& chunk, double* sums);
void LambApply(const LambChunk& chunk);
}  // namespace avx512

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_
