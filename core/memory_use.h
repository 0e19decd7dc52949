// SPDX-License-Identifier: Apache-2.0
// What bytes on meta are for, so that a dry run can tell buffers and scratch from activations.
//
//   const MemoryUseScope scope(MemoryUse::kBucket);
//   whole = Empty({elements}, dtype, device);          // counted as a bucket until it is freed
//
//   MetaBytesOf(Device::Meta()).at_peak.buckets;       // of AllocatorStats::peak_bytes
//
// A tensor's storage belongs to the use under which its bytes were asked for, whoever holds it
// later. What a kernel asks of the allocator itself (core/kernel_table.h) is a workspace. Other
// devices do not tell uses apart, and a scope changes nothing there.
#ifndef TESSERA_CORE_MEMORY_USE_H_
#define TESSERA_CORE_MEMORY_USE_H_

#include <cstdint>

#include "core/device.h"

namespace tessera {

enum class MemoryUse : uint8_t {
  kOther,      // parameters, gradients, states, activations
  kBucket,     // a buffer for communication: gradients on their way, gathered parameters
  kWorkspace,  // scratch of a kernel
  kShape,      // names and shapes, which a real run has on meta, too: not counted at all
};

// Tensors that this thread makes within the scope are for `use`.
class MemoryUseScope {
 public:
  explicit MemoryUseScope(MemoryUse use);
  ~MemoryUseScope();
  MemoryUseScope(const MemoryUseScope&) = delete;
  MemoryUseScope& operator=(const MemoryUseScope&) = delete;

 private:
  const MemoryUse before_;
};

// Bytes as an allocator counts them, rounded.
struct UseBytes {
  int64_t buckets = 0;
  int64_t workspaces = 0;

  UseBytes operator+(const UseBytes& other) const {
    return {buckets + other.buckets, workspaces + other.workspaces};
  }
  UseBytes operator-(const UseBytes& other) const {
    return {buckets - other.buckets, workspaces - other.workspaces};
  }
  friend bool operator==(const UseBytes&, const UseBytes&) = default;
};

struct MetaBytes {
  UseBytes current;
  UseBytes at_peak;  // when the allocator's bytes became its peak
};

// Throws Error for a device that is not on meta.
MetaBytes MetaBytesOf(const Device& device);

}  // namespace tessera

#endif  // TESSERA_CORE_MEMORY_USE_H_
