// Host memory that the GPU copies from and to on its own, and copies that do not wait.
//
//   Tensor staging = EmptyPinned({batch, tokens}, DType::kInt64);     // a CPU tensor
//   CopyAsync(gpu_tensor, staging);         // ordered on the current stream
//   Event copied; copied.Record(CurrentStream());
//   ... copied.Synchronize() before staging is written again.
#ifndef TESSERA_CORE_CUDA_PINNED_H_
#define TESSERA_CORE_CUDA_PINNED_H_

#include "core/tensor.h"

namespace tessera::cuda {

// A contiguous CPU tensor in page-locked memory, uninitialised. Freed blocks are kept for requests
// of the same size.
Tensor EmptyPinned(const Shape& shape, DType dtype);

// dst = src on the current stream of the tensors' GPU, without waiting: same shape and dtype, both
// contiguous, one of them (or both) on a GPU, a host tensor in pinned memory. Whoever calls keeps
// both alive and unwritten until the stream has passed the copy.
void CopyAsync(const Tensor& dst, const Tensor& src);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_PINNED_H_
