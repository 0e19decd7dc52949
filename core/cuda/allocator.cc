// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/allocator.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"

namespace tessera::cuda {
namespace {

constexpr int kMaxDevices = 64;

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int device) : device_(device) {}

  void* Obtain(size_t bytes) override {
    Activate(device_);
    void* pointer = nullptr;
    const cudaError_t error = cudaMalloc(&pointer, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    CheckCuda(error, "allocate");
    return pointer;
  }
  void Return(void* pointer, size_t) override {
    Activate(device_);
    // At exit the driver may be gone, and the memory with it.
    const cudaError_t error = cudaFree(pointer);
    if (error != cudaErrorCudartUnloading) CheckCuda(error, "free");
  }
  size_t FreeBytes() override { return MemoryInfo().first; }
  size_t TotalBytes() override { return MemoryInfo().second; }

  uint64_t Mark(StreamId stream) override {
    Activate(device_);
    auto event = std::make_unique<Event>();
    event->Record(static_cast<cudaStream_t>(stream));
    events_[++marks_] = std::move(event);
    return marks_;
  }
  bool Passed(uint64_t mark, bool wait) override {
    const auto found = events_.find(mark);
    if (wait) found->second->Synchronize();
    if (!wait && !found->second->Passed()) return false;
    events_.erase(found);
    return true;
  }

 private:
  std::pair<size_t, size_t> MemoryInfo() {
    Activate(device_);
    size_t free = 0;
    size_t total = 0;
    CheckCuda(cudaMemGetInfo(&free, &total), "memory of the device");
    return {free, total};
  }

  int device_;
  uint64_t marks_ = 0;
  std::map<uint64_t, std::unique_ptr<Event>> events_;
};

size_t Rounded(size_t bytes) {
  return Allocator::For(Device::Meta(DeviceType::kCuda)).RoundedSize(bytes);
}

class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(int device)
      : device_(device), memory_(device), pool_(Concat("cuda:", device), &memory_, Rounded) {}

  void* Allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    Activate(device_);
    return pool_.Allocate(bytes, CurrentStream());
  }
  void Free(void* pointer, size_t) override { pool_.Free(pointer); }
  size_t RoundedSize(size_t bytes) const override { return Rounded(bytes); }
  void ReleaseCached() override { pool_.ReleaseCached(); }
  AllocatorStats stats() const override { return pool_.stats(); }
  void ResetPeak() override { pool_.ResetPeak(); }
  void SetLimit(int64_t bytes) override { pool_.SetLimit(bytes); }
  double available_bytes() const override {
    const AllocatorStats now = pool_.stats();
    return static_cast<double>(Properties(device_).free_bytes) +
           static_cast<double>(now.reserved_bytes - now.current_bytes);
  }
  BlockPool& pool() { return pool_; }

 private:
  int device_;
  CudaMemory memory_;
  BlockPool pool_;
};

// Throws for a GPU that cannot be used; checked once per index.
CudaAllocator* AllocatorOf(int index) {
  static std::array<std::atomic<CudaAllocator*>, kMaxDevices> known{};
  static std::mutex mutex;
  TESSERA_CHECK(index >= 0 && index < kMaxDevices, "allocate", "there is no GPU ", index);
  CudaAllocator* allocator = known[index].load(std::memory_order_acquire);
  if (allocator != nullptr) return allocator;
  std::lock_guard<std::mutex> lock(mutex);
  allocator = known[index].load(std::memory_order_acquire);
  if (allocator != nullptr) return allocator;
  const Status status = CheckDevice(index);
  TESSERA_CHECK(status.ok(), "allocate", Message(status));
  allocator = new CudaAllocator(index);  // never destroyed, like the CPU's
  known[index].store(allocator, std::memory_order_release);
  return allocator;
}

const bool registered = [] {
  Allocator::Register(DeviceType::kCuda,
                      [](const Device& device) -> Allocator* { return AllocatorOf(device.index); });
  return true;
}();

}  // namespace

BlockPool& PoolOf(int device) { return AllocatorOf(device)->pool(); }

Workspace::Workspace(size_t bytes)
    : pool_(PoolOf(ActiveDevice())), data_(pool_.Allocate(bytes, CurrentStream())) {}
Workspace::~Workspace() { pool_.Free(data_); }

}  // namespace tessera::cuda
