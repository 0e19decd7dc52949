// SPDX-License-Identifier: Apache-2.0
// What the CPU's kernels of elementwise updates share.
#ifndef TESSERA_OPTIM_UPDATE_CPU_H_
#define TESSERA_OPTIM_UPDATE_CPU_H_

#include <cstdint>
#include <vector>

#include "core/cpu_isa.h"
#include "optim/chunk_loop.h"
#include "optim/update_chunks.h"
#include "optim/update_kernel.h"

namespace tessera::optim {

inline UpdateType UpdateTypeOf(DType dtype) {
  return dtype == DType::kFloat32    ? UpdateType::kFloat32
         : dtype == DType::kBFloat16 ? UpdateType::kBFloat16
                                     : UpdateType::kFloat16;
}

// Where element i of an array lies.
inline void* ElementAt(void* data, DType dtype, int64_t i) {
  return static_cast<char*>(data) + i * static_cast<int64_t>(DTypeSize(dtype));
}
// Likewise of one that is read.
inline const void* ElementAt(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) + i * static_cast<int64_t>(DTypeSize(dtype));
}

// Whether the step is left out, for an overflow.
inline bool Skipped(const UpdateScalars& s) { return s.found_inf != nullptr && *s.found_inf != 0; }

// What gradients are multiplied by: unscaled and clipped.
inline double GradScale(const UpdateScalars& s) {
  const double clip = s.clip_factor != nullptr ? static_cast<double>(*s.clip_factor) : 1.0;
  return s.loss_scale != nullptr ? clip / static_cast<double>(*s.loss_scale) : clip;
}

// A threaded loop over the chunks of all tensors.
inline ChunkLoop UpdateLoop(const std::vector<UpdateTensor>& tensors) {
  ChunkLoop loop(kUpdateChunk);
  for (const UpdateTensor& t : tensors) loop.Add(t.n);
  return loop;
}

// n elements of a tensor from `begin` on.
inline UpdateChunk UpdateChunkOf(const UpdateTensor& t, int64_t begin, int64_t n,
                                 double grad_scale) {
  return {UpdateTypeOf(t.dtype),
          UpdateTypeOf(t.grad_dtype),
          n,
          ElementAt(t.param, t.dtype, begin),
          t.master != nullptr ? t.master + begin : nullptr,
          ElementAt(t.grad, t.grad_dtype, begin),
          static_cast<float>(grad_scale)};
}

// One of a function's versions, by the instruction set in use.
template <typename Fn>
Fn* ForActiveIsa(Fn* baseline, Fn* avx2, Fn* avx512) {
  return IsaTable<Fn>{baseline, avx2, avx512}.Select();
}

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_UPDATE_CPU_H_
