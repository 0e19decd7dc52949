// SPDX-License-Identifier: Apache-2.0
// Work for an emulated stream that is not one of CUDA's functions: kernels, and what libraries do.
#ifndef TESSERA_CORE_CUDA_TESTING_EMULATION_WORK_H_
#define TESSERA_CORE_CUDA_TESTING_EMULATION_WORK_H_

#include <cuda_runtime_api.h>

#include <functional>

#include "core/cuda/testing/emulation/grid.h"

namespace tessera::cuda::emulation {

// Runs when the stream comes to it, or is recorded where the stream is captured.
cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work);

// A kernel; refuses the shapes that a GPU of compute capability 9.0 refuses. `function` is what
// cudaFuncSetAttribute knows the kernel by.
cudaError_t EnqueueGrid(const void* function, const GridShape& shape, cudaStream_t stream,
                        std::function<void()> thread);

}  // namespace tessera::cuda::emulation

#endif  // TESSERA_CORE_CUDA_TESTING_EMULATION_WORK_H_
