// SPDX-License-Identifier: Apache-2.0
// The allocator of a GPU: a BlockPool over cudaMalloc.
//
//   BlockPool& pool = PoolOf(0);
//   pool.stats().fragmentation();
//
// Allocator::For(Device::Cuda(i)) is the same pool behind core/allocator.h: blocks belong to the
// stream that is current where they are asked for, and count as those of `meta:cuda`.
#ifndef TESSERA_CORE_CUDA_ALLOCATOR_H_
#define TESSERA_CORE_CUDA_ALLOCATOR_H_

#include "core/cuda/block_pool.h"

namespace tessera::cuda {

// Throws Error where the GPU cannot be used.
BlockPool& PoolOf(int device);

// Device memory for the length of a scope, on the active GPU and the current stream: a kernel's
// workspace. The memory is used again only by work behind that of the scope.
class Workspace {
 public:
  explicit Workspace(size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void* data() const { return data_; }

 private:
  BlockPool& pool_;
  void* data_;
};

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_ALLOCATOR_H_
