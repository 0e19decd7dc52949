// SPDX-License-Identifier: Apache-2.0
// LAMB over a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_
#define TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_

#include "core/cpu/every_isa.h"
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
TESSERA_DECLARE_FOR_EVERY_ISA(void LambMoments(const LambChunk& chunk, double* sums);
                              void LambApply(const LambChunk& chunk);)

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_
