#include "core/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/execution_context.h"

namespace tessera {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// Size classes: multiples of 64 bytes up to 4 KiB, then 32 classes per power of two, so that at
// most a thirty-second of a block is waste.
size_t SizeClass(size_t bytes) {
  if (bytes == 0) return 0;
  if (bytes <= 4096) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  size_t step = 128;
  while (step * 64 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

// Counts requests; what memory stands behind them is the subclass's.
class CountingAllocator : public Allocator {
 public:
  explicit CountingAllocator(const char* name) : name_(name) {}

  size_t RoundedSize(size_t bytes) const override { return SizeClass(bytes); }

  void* Allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const size_t size = SizeClass(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    if (limit_ > 0 && stats_.current_bytes + static_cast<int64_t>(size) > limit_) {
      throw OutOfMemoryError(name_, Concat("asked for ", size, " bytes with ", stats_.current_bytes,
                                           " in use and a limit of ", limit_));
    }
    void* pointer = Obtain(size);
    stats_.current_bytes += static_cast<int64_t>(size);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.current_bytes);
    ++stats_.allocations;
    return pointer;
  }

  void Free(void* pointer, size_t bytes) override {
    if (bytes == 0) return;
    const size_t size = SizeClass(bytes);
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.current_bytes -= static_cast<int64_t>(size);
    GiveBack(pointer, size);
  }

  AllocatorStats stats() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }
  void ResetPeak() override {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.peak_bytes = stats_.current_bytes;
  }
  void SetLimit(int64_t bytes) override {
    std::lock_guard<std::mutex> lock(mutex_);
    limit_ = bytes;
  }

 protected:
  // Called with the lock held.
  virtual void* Obtain(size_t size) = 0;
  virtual void GiveBack(void* pointer, size_t size) = 0;

  mutable std::mutex mutex_;
  AllocatorStats stats_;
  int64_t limit_ = 0;
  const char* name_;
};

void* FromSystem(size_t size) {
  if (size < kHugePage) return std::aligned_alloc(kAlignment, size);
  // Large blocks begin on a huge-page boundary and are offered to huge pages: a fault per 2 MiB
  // instead of one per 4 KiB, and fewer misses in the translation cache.
  void* pointer = std::aligned_alloc(kHugePage, (size + kHugePage - 1) / kHugePage * kHugePage);
  if (pointer != nullptr) madvise(pointer, size, MADV_HUGEPAGE);
  return pointer;
}

constexpr Allocator::HostMemory kSystemMemory = {FromSystem, std::free};

class CpuAllocator final : public CountingAllocator {
 public:
  explicit CpuAllocator(const char* name) : CountingAllocator(name) {}
  CpuAllocator(const char* name, const HostMemory& memory)
      : CountingAllocator(name), memory_(memory) {}
  ~CpuAllocator() override { DropOldest(0); }

  // Before the first block.
  void set_memory(const HostMemory& memory) { memory_ = memory; }

  void ReleaseCached() override {
    std::lock_guard<std::mutex> lock(mutex_);
    DropOldest(0);
  }

 protected:
  void* Obtain(size_t size) override {
    const auto cached = free_.find(size);
    if (cached != free_.end()) {
      void* pointer = cached->second.back().pointer;
      cached->second.pop_back();
      if (cached->second.empty()) free_.erase(cached);
      return pointer;
    }
    const int64_t needed = stats_.current_bytes + static_cast<int64_t>(size);
    const int64_t peak = std::max(stats_.peak_bytes, needed);
    DropOldest(peak + peak / 4 + kSlack - static_cast<int64_t>(size));
    void* pointer = memory_.obtain(size);
    if (pointer == nullptr) {
      DropOldest(0);
      pointer = memory_.obtain(size);
    }
    if (pointer == nullptr) {
      throw OutOfMemoryError(
          name_, Concat("the system has no ", size, " bytes left; in use: ", stats_.current_bytes));
    }
    stats_.reserved_bytes += static_cast<int64_t>(size);
    return pointer;
  }

  void GiveBack(void* pointer, size_t size) override { free_[size].push_back({pointer, ++freed_}); }

 private:
  struct Block {
    void* pointer;
    uint64_t freed;  // when, counted in calls
  };
  // What may be cached beyond a quarter of the peak.
  static constexpr int64_t kSlack = int64_t{64} << 20;

  // Gives cached blocks back to the system, those unused for longest first, until no more than
  // `reserved` bytes are held or none is cached. Without this, batches whose lengths vary would
  // leave blocks of every size behind.
  void DropOldest(int64_t reserved) {
    while (stats_.reserved_bytes > reserved && !free_.empty()) {
      auto oldest = free_.begin();
      for (auto it = free_.begin(); it != free_.end(); ++it) {
        if (it->second.front().freed < oldest->second.front().freed) oldest = it;
      }
      memory_.give_back(oldest->second.front().pointer);
      stats_.reserved_bytes -= static_cast<int64_t>(oldest->first);
      oldest->second.pop_front();
      if (oldest->second.empty()) free_.erase(oldest);
    }
  }

  HostMemory memory_ = kSystemMemory;
  // By size; the block freed last is the first to be used again.
  std::map<size_t, std::deque<Block>> free_;
  uint64_t freed_ = 0;
};

// Hands out no memory: a storage on meta has a null pointer and counted bytes.
class MetaAllocator final : public CountingAllocator {
 public:
  explicit MetaAllocator(const char* name) : CountingAllocator(name) {}
  void ReleaseCached() override {}

 protected:
  void* Obtain(size_t) override { return nullptr; }
  void GiveBack(void*, size_t) override {}
};

// Never destroyed: tensors with static storage duration may be freed after any static destructor.
CpuAllocator& HostAllocator() {
  static CpuAllocator* host = new CpuAllocator("host allocator");
  return *host;
}
Allocator* FindCpu(const Device& device) {
  static CpuAllocator* cpu = new CpuAllocator("cpu allocator");
  return device.is_host() ? &HostAllocator() : cpu;
}
Allocator* FindMeta(const Device& device) {
  static MetaAllocator* cpu = new MetaAllocator("meta allocator");
  static MetaAllocator* cuda = new MetaAllocator("meta allocator");
  static MetaAllocator* host = new MetaAllocator("meta host allocator");
  if (device.target == DeviceType::kCuda) return cuda;
  return device.index == Device::Host().index ? host : cpu;
}

std::atomic<Allocator::Finder>& FinderFor(DeviceType type) {
  static std::atomic<Allocator::Finder> finders[kNumDeviceTypes] = {FindCpu, nullptr, FindMeta};
  return finders[static_cast<int>(type)];
}

}  // namespace

void Allocator::SetHostMemory(const HostMemory& memory) { HostAllocator().set_memory(memory); }

void Allocator::Register(DeviceType type, Finder find) { FinderFor(type) = find; }

Allocator* Allocator::Find(const Device& device) {
  const Finder find = FinderFor(device.type);
  return find == nullptr ? nullptr : find(device);
}

Allocator& Allocator::For(const Device& device) {
  Allocator* allocator = Find(device);
  TESSERA_CHECK(allocator != nullptr, "allocate", device, " is not part of this program");
  return *allocator;
}

Allocator& Allocator::Current(const Device& device) {
  Allocator* const own = ExecutionContext::Current().cpu_allocator;
  return own != nullptr && device == Device::Cpu() ? *own : For(device);
}

std::unique_ptr<Allocator> Allocator::MakeCpu(const char* name) {
  return std::make_unique<CpuAllocator>(name);
}

std::unique_ptr<Allocator> Allocator::MakeCpu(const char* name, const HostMemory& memory) {
  return std::make_unique<CpuAllocator>(name, memory);
}

}  // namespace tessera
