// SPDX-License-Identifier: Apache-2.0
// Lion over a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_LION_LION_CHUNKS_H_
#define TESSERA_OPTIM_LION_LION_CHUNKS_H_

#include "optim/update_chunks.h"

namespace tessera::optim {

// g = grad * grad_scale;  u = sign(beta1 * m + (1 - beta1) * g)
// w -= decay * w;  w -= lr * u;  m = beta2 * m + (1 - beta2) * g
struct LionChunk {
  UpdateChunk base;
  float* exp_avg;  // m, "="
  float decay;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float lr;
};

namespace baseline {
void Lion(const LionChunk& chunk);
}
namespace avx2 {
void Lion(const LionChunk& chunk);
}
namespace avx512 {
void Lion(const LionChunk& chunk);
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LION_LION_CHUNKS_H_
