// SPDX-License-Identifier: Apache-2.0
#include "core/kernel_table.h"

#include <string>

#include "base/error.h"
#include "core/allocator.h"

namespace tessera {

void AnyKernelTable::AddKernel(DeviceType type, AnyFn fn) {
  twice_ = twice_ || fns_[static_cast<int>(type)] != nullptr;
  fns_[static_cast<int>(type)] = fn;
}

AnyKernelTable::AnyFn AnyKernelTable::KernelOf(const Device& device) const {
  const auto registered = [&] {
    std::string names;
    if (fns_[static_cast<int>(DeviceType::kCpu)] != nullptr) names += " cpu";
    if (fns_[static_cast<int>(DeviceType::kCuda)] != nullptr) names += " cuda";
    return names.empty() ? "none" : names.substr(1);
  };
  const AnyFn fn = fns_[static_cast<int>(device.type)];
  TESSERA_CHECK(fn != nullptr, name_, "no kernel for ", device, "; registered: ", registered());
  TESSERA_CHECK(!twice_, name_, "two kernels of one kind of device are registered");
  ActivateDevice(device);
  return fn;
}

void AnyKernelTable::CountWorkspace(const Device& meta, size_t bytes) {
  if (bytes == 0) return;
  Allocator& allocator = Allocator::For(meta);
  allocator.Free(allocator.Allocate(bytes), bytes);
}

}  // namespace tessera
