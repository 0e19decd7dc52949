// SPDX-License-Identifier: Apache-2.0
// Updates of a run of elements, compiled once per instruction set. Raw pointers only.
#ifndef TESSERA_OPTIM_UPDATE_CHUNKS_H_
#define TESSERA_OPTIM_UPDATE_CHUNKS_H_

#include <cstdint>

namespace tessera::optim {

enum class UpdateType : uint8_t { kFloat32, kBFloat16, kFloat16 };

// Computed in float32.
struct UpdateChunk {
  UpdateType type;       // of param
  UpdateType grad_type;  // of grad
  int64_t n;
  void* param;    // "="
  float* master;  // the weights where type is half (param = their rounding), else nullptr
  const void* grad;
  float grad_scale;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_UPDATE_CHUNKS_H_
