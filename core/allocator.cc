// SPDX-License-Identifier: Apache-2.0
#include "core/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "core/control_groups.h"
#include "core/execution_context.h"
#include "core/memory_use.h"

namespace tessera {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

// No machine has more, and sums of two sizes do not overflow.
constexpr size_t kLargestBlock = size_t{1} << 60;

// Size classes: multiples of 64 bytes up to 4 KiB, then 32 classes per power of two, so that at
// most a thirty-second of a block is waste.
constexpr size_t kFineClasses = 4096 / kAlignment;
constexpr size_t kClassesPerPower = 32;
constexpr size_t kNumClasses =
    kFineClasses + kClassesPerPower * (std::bit_width(kLargestBlock) - std::bit_width(4096u)) + 1;

size_t SizeClass(size_t bytes) {
  if (bytes == 0) return 0;
  if (bytes <= 4096) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  size_t step = 128;
  while (step * 64 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

// Numbers the classes; `size` is one's.
size_t IndexOfClass(size_t size) {
  if (size <= 4096) return size / kAlignment;
  const int power = std::bit_width(size - 1) - std::bit_width(4096u);  // size <= 8192 << power
  const size_t step = size_t{128} << power;
  return kFineClasses + static_cast<size_t>(power) * kClassesPerPower + size / step -
         kClassesPerPower;
}

// Counts requests; what memory is behind them is the subclass's.
class CountingAllocator : public Allocator {
 public:
  explicit CountingAllocator(const char* name) : name_(name) {}

  size_t RoundedSize(size_t bytes) const override { return SizeClass(bytes); }

  void* Allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    return AllocateLocked(bytes);
  }

  void Free(void* pointer, size_t bytes) override {
    if (bytes == 0) return;
    std::lock_guard<std::mutex> lock(mutex_);
    FreeLocked(pointer, bytes);
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
  // All of these are called with the lock held.
  void* AllocateLocked(size_t bytes) {
    if (bytes > kLargestBlock) {
      throw OutOfMemoryError(name_, Concat("asked for ", bytes, " bytes"));
    }
    const size_t size = SizeClass(bytes);
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
  void FreeLocked(void* pointer, size_t bytes) {
    const size_t size = SizeClass(bytes);
    stats_.current_bytes -= static_cast<int64_t>(size);
    GiveBack(pointer, size);
  }
  virtual void* Obtain(size_t size) = 0;
  virtual void GiveBack(void* pointer, size_t size) = 0;

  mutable std::mutex mutex_;
  AllocatorStats stats_;
  int64_t limit_ = 0;
  const char* name_;
};

void* FromSystem(size_t size) {
  if (size < kHugePage) {
    return ::operator new(size, std::align_val_t(kAlignment), std::nothrow);
  }
  // Large blocks begin on a huge-page boundary and are offered to huge pages: a fault per 2 MiB
  // instead of one per 4 KiB, and fewer misses in the translation cache.
  void* pointer = ::operator new(size, std::align_val_t(kHugePage), std::nothrow);
  if (pointer != nullptr) madvise(pointer, size, MADV_HUGEPAGE);
  return pointer;
}

void ToSystem(void* pointer, size_t size) {
  const size_t alignment = size < kHugePage ? kAlignment : kHugePage;
  ::operator delete(pointer, std::align_val_t(alignment));
}

// Blocks that are free: each holds its own links, so that freeing takes no memory and cannot fail.
class FreeBlocks {
 public:
  bool empty() const { return oldest_ == nullptr; }

  void Add(void* pointer, size_t size) {
    Block*& latest = latest_of_class_[IndexOfClass(size)];
    Block* const block =
        new (pointer) Block{.size = size, .before_in_class = latest, .older = newest_};
    if (latest != nullptr) latest->after_in_class = block;
    latest = block;
    (newest_ == nullptr ? oldest_ : newest_->newer) = block;
    newest_ = block;
  }

  // The one of this size that was freed last; nullptr: none.
  void* Latest(size_t size) const { return latest_of_class_[IndexOfClass(size)]; }
  void* Take(size_t size) {
    Block* const block = latest_of_class_[IndexOfClass(size)];
    if (block != nullptr) Remove(block);
    return block;
  }

  // The one that was freed first, of whatever size. Not when empty.
  std::pair<void*, size_t> TakeOldest() {
    Block* const block = oldest_;
    const size_t size = block->size;
    Remove(block);
    return {block, size};
  }

 private:
  struct Block {
    size_t size;
    Block* before_in_class;  // of the same size, freed before and after this one
    Block* after_in_class = nullptr;
    Block* older;  // of any size
    Block* newer = nullptr;
  };
  static_assert(sizeof(Block) <= kAlignment);

  void Remove(Block* block) {
    if (block->before_in_class != nullptr) {
      block->before_in_class->after_in_class = block->after_in_class;
    }
    (block->after_in_class == nullptr ? latest_of_class_[IndexOfClass(block->size)]
                                      : block->after_in_class->before_in_class) =
        block->before_in_class;
    (block->older == nullptr ? oldest_ : block->older->newer) = block->newer;
    (block->newer == nullptr ? newest_ : block->newer->older) = block->older;
  }

  std::array<Block*, kNumClasses> latest_of_class_ = {};
  Block* oldest_ = nullptr;
  Block* newest_ = nullptr;
};

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
  double available_bytes() const override {
    const AllocatorStats now = stats();
    return MemoryLeft() + static_cast<double>(now.reserved_bytes - now.current_bytes);
  }

 protected:
  void* Obtain(size_t size) override {
    if (void* const cached = free_.Take(size)) return cached;
    if (void* const larger = TakeLarger(size)) return larger;
    const int64_t needed = stats_.current_bytes + static_cast<int64_t>(size);
    const int64_t peak = std::max(stats_.peak_bytes, needed);
    DropOldest(peak + peak / 4 + kSlack - static_cast<int64_t>(size));
    void* pointer = ObtainNew(size);
    if (pointer == nullptr) {
      DropOldest(0);
      pointer = ObtainNew(size);
    }
    if (pointer == nullptr) {
      throw OutOfMemoryError(
          name_, Concat("the system has no ", size, " bytes left; in use: ", stats_.current_bytes));
    }
    stats_.reserved_bytes += static_cast<int64_t>(size);
    return pointer;
  }

  void GiveBack(void* pointer, size_t size) override {
    const auto larger = larger_.empty() ? larger_.end() : larger_.find(pointer);
    if (larger == larger_.end()) {
      free_.Add(pointer, size);
      return;
    }
    free_.Add(pointer, larger->second);
    larger_.erase(larger);
  }

 private:
  static constexpr size_t kLeastLarger = size_t{64} << 10;
  // What may be cached beyond a quarter of the peak.
  static constexpr int64_t kSlack = int64_t{64} << 20;

  // A cached block that is up to a quarter larger, of requests whose pages the system would have to
  // clear: where sizes vary (rows of experts, texts of a batch), most are some other one's before.
  void* TakeLarger(size_t size) {
    if (size < kLeastLarger || free_.empty()) return nullptr;
    for (size_t next = SizeClass(size + 1); next <= size + size / 4; next = SizeClass(next + 1)) {
      void* const block = free_.Latest(next);
      if (block == nullptr) continue;
      larger_.emplace(block, next);
      return free_.Take(next);
    }
    return nullptr;
  }

  void* ObtainNew(size_t size) {
    return memory_.has_value() ? memory_->obtain(size) : FromSystem(size);
  }

  // Gives cached blocks back to the system, those unused for longest first, until no more than
  // `reserved` bytes are held or none is cached. Without this, batches whose lengths vary would
  // leave blocks of every size behind.
  void DropOldest(int64_t reserved) {
    while (stats_.reserved_bytes > reserved && !free_.empty()) {
      const auto [pointer, size] = free_.TakeOldest();
      memory_.has_value() ? memory_->give_back(pointer) : ToSystem(pointer, size);
      stats_.reserved_bytes -= static_cast<int64_t>(size);
    }
  }

  std::optional<HostMemory> memory_;  // nullopt: operator new's
  FreeBlocks free_;
  std::unordered_map<void*, size_t> larger_;  // blocks in use that are larger than was asked
};

// What tensors that this thread makes are for.
constinit thread_local MemoryUse memory_use = MemoryUse::kOther;

// Hands out no memory: a storage on meta has a null pointer and counted bytes. Storages get their
// bytes through `Of` a use, and give them back there, so that a null pointer need not say whose
// they are.
class MetaAllocator final : public CountingAllocator {
 public:
  explicit MetaAllocator(const char* name) : CountingAllocator(name) {}
  void ReleaseCached() override {}

  // Of kernels, which ask without a storage.
  void* Allocate(size_t bytes) override { return AllocateFor(MemoryUse::kWorkspace, bytes); }
  void Free(void* pointer, size_t bytes) override {
    FreeFor(MemoryUse::kWorkspace, pointer, bytes);
  }
  void ResetPeak() override {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.peak_bytes = stats_.current_bytes;
    uses_.at_peak = uses_.current;
  }

  Allocator& Of(MemoryUse use) { return parts_[static_cast<size_t>(use)]; }
  MetaBytes uses() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return uses_;
  }

 protected:
  void* Obtain(size_t) override { return nullptr; }
  void GiveBack(void*, size_t) override {}

 private:
  // The allocator, for one use.
  class Part final : public Allocator {
   public:
    Part(MetaAllocator* whole, MemoryUse use) : whole_(*whole), use_(use) {}
    void* Allocate(size_t bytes) override { return whole_.AllocateFor(use_, bytes); }
    void Free(void* pointer, size_t bytes) override { whole_.FreeFor(use_, pointer, bytes); }
    size_t RoundedSize(size_t bytes) const override { return whole_.RoundedSize(bytes); }
    void ReleaseCached() override {}
    AllocatorStats stats() const override { return whole_.stats(); }
    void ResetPeak() override { whole_.ResetPeak(); }
    void SetLimit(int64_t bytes) override { whole_.SetLimit(bytes); }

   private:
    MetaAllocator& whole_;
    const MemoryUse use_;
  };

  void* AllocateFor(MemoryUse use, size_t bytes) {
    if (bytes == 0 || use == MemoryUse::kShape) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t peak = stats_.peak_bytes;
    void* const pointer = AllocateLocked(bytes);
    AddTo(use, static_cast<int64_t>(SizeClass(bytes)));
    if (stats_.peak_bytes > peak) uses_.at_peak = uses_.current;
    return pointer;
  }
  void FreeFor(MemoryUse use, void* pointer, size_t bytes) {
    if (bytes == 0 || use == MemoryUse::kShape) return;
    std::lock_guard<std::mutex> lock(mutex_);
    FreeLocked(pointer, bytes);
    AddTo(use, -static_cast<int64_t>(SizeClass(bytes)));
  }
  void AddTo(MemoryUse use, int64_t bytes) {
    if (use == MemoryUse::kBucket) uses_.current.buckets += bytes;
    if (use == MemoryUse::kWorkspace) uses_.current.workspaces += bytes;
  }

  MetaBytes uses_;
  std::array<Part, 4> parts_ = {Part(this, MemoryUse::kOther), Part(this, MemoryUse::kBucket),
                                Part(this, MemoryUse::kWorkspace), Part(this, MemoryUse::kShape)};
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
MetaAllocator& MetaOf(const Device& device) {
  static MetaAllocator* cpu = new MetaAllocator("meta allocator");
  static MetaAllocator* cuda = new MetaAllocator("meta allocator");
  static MetaAllocator* host = new MetaAllocator("meta host allocator");
  if (device.target == DeviceType::kCuda) return *cuda;
  return device.index == Device::Host().index ? *host : *cpu;
}
Allocator* FindMeta(const Device& device) { return &MetaOf(device); }

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
  if (device.is_meta()) return MetaOf(device).Of(memory_use);
  Allocator* const own = ExecutionContext::Current().cpu_allocator;
  return own != nullptr && device == Device::Cpu() ? *own : For(device);
}

std::unique_ptr<Allocator> Allocator::MakeCpu(const char* name) {
  return std::make_unique<CpuAllocator>(name);
}

std::unique_ptr<Allocator> Allocator::MakeCpu(const char* name, const HostMemory& memory) {
  return std::make_unique<CpuAllocator>(name, memory);
}

MemoryUseScope::MemoryUseScope(MemoryUse use) : before_(memory_use) { memory_use = use; }
MemoryUseScope::~MemoryUseScope() { memory_use = before_; }

MetaBytes MetaBytesOf(const Device& device) {
  TESSERA_CHECK(device.is_meta(), "memory_use", device, " does not tell uses apart");
  return MetaOf(device).uses();
}

}  // namespace tessera
