// SPDX-License-Identifier: Apache-2.0
// Device::Host() is page-locked memory where there is a GPU: what is off-loaded then travels at the
// bus's speed, without a copy through a buffer of the driver's.
#include <cstdlib>

#include "core/allocator.h"
#include "core/cuda/runtime.h"

namespace tessera::cuda {
namespace {

// Decided once, so that a block is given back to where it came from.
bool Pins() {
  static const bool pins = DeviceCount() > 0;
  return pins;
}

void* Obtain(size_t bytes) {
  if (!Pins()) return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  void* block = nullptr;
  ActiveDevice();
  const cudaError_t error = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;  // the allocator says so
  }
  CheckCuda(error, "pinned memory");
  return block;
}

void GiveBack(void* block) {
  if (!Pins()) return std::free(block);
  CheckCuda(cudaFreeHost(block), "pinned memory");
}

const bool registered = [] {
  Allocator::SetHostMemory({Obtain, GiveBack});
  return true;
}();

}  // namespace
}  // namespace tessera::cuda
