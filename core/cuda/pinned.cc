#include "core/cuda/pinned.h"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/allocator.h"
#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"

namespace tessera::cuda {
namespace {

// Blocks by size; never given back while the process runs.
class PinnedCache {
 public:
  void* Take(size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto& blocks = free_[bytes];
      if (!blocks.empty()) {
        void* block = blocks.back();
        blocks.pop_back();
        return block;
      }
    }
    void* block = nullptr;
    ActiveDevice();
    const cudaError_t error = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      throw OutOfMemoryError("pinned memory",
                             Concat("the system has no ", bytes, " bytes to lock for the GPU"));
    }
    CheckCuda(error, "pinned memory");
    return block;
  }
  void Give(void* block, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_[bytes].push_back(block);
  }

 private:
  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
};

PinnedCache& Cache() {
  static auto* cache = new PinnedCache;
  return *cache;
}

}  // namespace

Tensor EmptyPinned(const Shape& shape, DType dtype) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * DTypeSize(dtype);
  const size_t rounded = Allocator::For(Device::Cpu()).RoundedSize(bytes);
  void* block = bytes == 0 ? nullptr : Cache().Take(rounded);
  std::shared_ptr<void> owner(block != nullptr ? block : &Cache(), [block, rounded](void*) {
    if (block != nullptr) Cache().Give(block, rounded);
  });
  auto storage = std::make_shared<Storage>(block, bytes, Device::Cpu(), std::move(owner));
  return Tensor(std::move(storage), shape, ContiguousStrides(shape), 0, dtype);
}

void CopyAsync(const Tensor& dst, const Tensor& src) {
  const Device& gpu = dst.device().is_cpu() ? src.device() : dst.device();
  TESSERA_CHECK(gpu.type == DeviceType::kCuda && dst.shape() == src.shape() &&
                    dst.dtype() == src.dtype() && dst.is_contiguous() && src.is_contiguous(),
                "copy_async", dst, " = ", src, ": contiguous tensors alike, one on a GPU");
  dst.storage()->BumpVersion();
  if (dst.numel() == 0) return;
  ActivateDevice(gpu);
  for (const Tensor& t : {dst, src}) {
    if (!t.device().is_cpu()) continue;
    cudaPointerAttributes attributes;
    CheckCuda(cudaPointerGetAttributes(&attributes, t.raw_data()), "copy_async");
    TESSERA_CHECK(attributes.type == cudaMemoryTypeHost, "copy_async", t,
                  " on the CPU is not in pinned memory");
  }
  CheckCuda(cudaMemcpyAsync(dst.raw_data(), src.raw_data(), static_cast<size_t>(dst.nbytes()),
                            cudaMemcpyDefault, CurrentStream()),
            "copy_async");
}

}  // namespace tessera::cuda
