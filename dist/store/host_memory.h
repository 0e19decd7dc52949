// SPDX-License-Identifier: Apache-2.0
// Where what is off-loaded from a device lies.
#ifndef TESSERA_DIST_STORE_HOST_MEMORY_H_
#define TESSERA_DIST_STORE_HOST_MEMORY_H_

#include "core/device.h"

namespace tessera::dist {

// Device::Host(), or, of a device on meta, the one that imitates it (`meta:host`), which has an
// allocator of its own likewise.
inline Device HostMemoryOf(const Device& device) {
  if (!device.is_meta()) return Device::Host();
  return {DeviceType::kMeta, DeviceType::kCpu, Device::Host().index};
}

// Whether what lies there lies in the host's memory.
inline bool IsHostMemory(const Device& device) { return device == HostMemoryOf(device); }

// Whether what computes on `device` can read what lies at `place` as it is.
inline bool CanRead(const Device& device, const Device& place) {
  return device.type == place.type && device.target == place.target;
}

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_HOST_MEMORY_H_
