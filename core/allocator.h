// SPDX-License-Identifier: Apache-2.0
// Device memory: caching allocators that count what they hand out.
//
//   Allocator& cpu = Allocator::For(Device::Cpu());
//   cpu.stats().current_bytes; cpu.stats().peak_bytes; cpu.ResetPeak();
//
// Blocks are aligned to 64 bytes and rounded up to `RoundedSize`, which the meta allocator of the
// same target shares, so that a dry run on `meta` counts the very bytes the real step will need.
// A freed block is kept for the next request of its size class; what is kept so is bounded by the
// peak (a quarter more, and 64 MiB), so that lengths that vary do not make a process grow.
// Thread-safe.
#ifndef TESSERA_CORE_ALLOCATOR_H_
#define TESSERA_CORE_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "core/device.h"

namespace tessera {

struct AllocatorStats {
  int64_t current_bytes = 0;   // handed out now, rounded
  int64_t peak_bytes = 0;      // the most of current_bytes since ResetPeak
  int64_t reserved_bytes = 0;  // held from the system: handed out + cached
  int64_t allocations = 0;     // calls so far
};

class Allocator {
 public:
  virtual ~Allocator() = default;

  // At least `bytes` bytes (0 gives nullptr), uninitialised. Throws OutOfMemoryError.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* pointer, size_t bytes) = 0;
  // The bytes a request of `bytes` is counted as.
  virtual size_t RoundedSize(size_t bytes) const = 0;
  // Gives cached blocks back to the system.
  virtual void ReleaseCached() = 0;

  virtual AllocatorStats stats() const = 0;
  // What requests can still get, blocks that are cached included; infinite where it is not known.
  virtual double available_bytes() const { return std::numeric_limits<double>::infinity(); }
  virtual void ResetPeak() = 0;
  // Requests that would raise current_bytes above `bytes` throw; 0 means no limit.
  virtual void SetLimit(int64_t bytes) = 0;

  // The allocator of a device, nullptr when this program has none for it.
  static Allocator* Find(const Device& device);
  // Likewise, but throws Error for a device that this program cannot use.
  static Allocator& For(const Device& device);
  // The one that tensors made on this thread get their bytes from: the execution context's
  // (core/execution_context.h), where it has one for the device, else For(device).
  static Allocator& Current(const Device& device);
  // How a device's code adds itself (at start-up). `find` maps an index to an allocator.
  using Finder = Allocator* (*)(const Device&);
  static void Register(DeviceType type, Finder find);

  // Where Device::Host()'s blocks come from, at start-up: memory that a GPU copies from and to on
  // its own, say. `obtain` gives nullptr where there is none; both must outlive the process.
  struct HostMemory {
    void* (*obtain)(size_t bytes);
    void (*give_back)(void* block);
  };
  static void SetHostMemory(const HostMemory& memory);

  // One of CPU memory beside the process's: with counts and a limit of its own, for an execution
  // context. `name` is what its errors call it, and stays valid. It outlives its blocks.
  static std::unique_ptr<Allocator> MakeCpu(const char* name);
  static std::unique_ptr<Allocator> MakeCpu(const char* name, const HostMemory& memory);
};

}  // namespace tessera

#endif  // TESSERA_CORE_ALLOCATOR_H_
