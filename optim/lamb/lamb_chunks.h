// SPDX-License-Identifier: Apache-2.0
// LAMB over a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_
#define TESSERA_OPTIM_LAMB_LAMB_CHUNKS_H_

#include "optim/update_chunks.h"

namespace tessera::optim {

// u = m * inverse_bias1 / (sqrt(v) * inverse_sqrt_bias2 + eps) + weight_decay * w
struct LambChunk {
  UpdateChunk base;
  float* exp_avg;     // m
  float* exp_avg_sq;  // v
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float inverse_bias1;
  float inverse_sqrt_bias2;
  float eps;
  float weight_decay;
  float step_size;
};

// LambMoments: g = grad * grad_scale;  m = beta1 * m + (1 - beta1) * g;
//              v = beta2 * v + (1 - beta2) * g * g;  sums = {sum of w^2, sum of u^2}, "="
// LambApply:   w -= step_size * u
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
