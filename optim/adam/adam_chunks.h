// SPDX-License-Identifier: Apache-2.0
// Adam and AdamW over a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_ADAM_ADAM_CHUNKS_H_
#define TESSERA_OPTIM_ADAM_ADAM_CHUNKS_H_

#include "optim/update_chunks.h"

namespace tessera::optim {

// g = grad * grad_scale + l2 * w;  w -= decay * w
// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
// w -= step_size * m / (sqrt(v) * inverse_sqrt_bias2 + eps)
struct AdamChunk {
  UpdateChunk base;
  float* exp_avg;     // m, "="
  float* exp_avg_sq;  // v, "="
  float l2;
  float decay;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inverse_sqrt_bias2;
  float eps;
  float step_size;
};

namespace baseline {
void Adam(const AdamChunk& chunk);
}
namespace avx2 {
void Adam(const AdamChunk& chunk);
}
namespace avx512 {
void Adam(const AdamChunk& chunk);
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_ADAM_ADAM_CHUNKS_H_
