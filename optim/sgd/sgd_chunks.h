// SPDX-License-Identifier: Apache-2.0
// SGD over a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_SGD_SGD_CHUNKS_H_
#define TESSERA_OPTIM_SGD_SGD_CHUNKS_H_

#include "optim/update_chunks.h"

namespace tessera::optim {

// g = grad * grad_scale + l2 * w;  b = momentum * b + g;  w -= lr * (nesterov ? g + momentum * b :
// b)
struct SgdChunk {
  UpdateChunk base;
  float* buffer;  // b, "="; nullptr: w -= lr * g
  float l2;
  float momentum;
  float lr;
  bool nesterov;
};

namespace baseline {
void Sgd(const SgdChunk& chunk);
}
namespace avx2 {
void Sgd(const SgdChunk& chunk);
}
namespace avx512 {
void Sgd(const SgdChunk& chunk);
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_SGD_SGD_CHUNKS_H_
