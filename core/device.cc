// SPDX-License-Identifier: Apache-2.0
#include "core/device.h"

#include <charconv>

namespace tessera {

std::string Device::ToString() const {
  switch (type) {
    case DeviceType::kCpu:
      return index == 0 ? "cpu" : "host";
    case DeviceType::kCuda:
      return Concat("cuda:", index);
    case DeviceType::kMeta:
      if (target == DeviceType::kCuda) return "meta:cuda";
      return index == 0 ? "meta:cpu" : "meta:host";
  }
  return "unknown";
}

StatusOr<Device> Device::Parse(std::string_view name) {
  if (name == "cpu") return Cpu();
  if (name == "meta" || name == "meta:cpu") return Meta();
  if (name == "meta:cuda") return Meta(DeviceType::kCuda);
  if (name == "cuda") return Cuda(0);
  if (name.substr(0, 5) == "cuda:") {
    int index = -1;
    const char* end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + 5, end, index);
    if (result.ec == std::errc() && result.ptr == end && index >= 0) return Cuda(index);
  }
  return InvalidArgument("device '", name, "' is not known; use cpu, cuda:<index> or meta");
}

namespace {

CudaBackend& Backend() {
  static CudaBackend backend;
  return backend;
}

}  // namespace

void RegisterCudaBackend(const CudaBackend& backend) { Backend() = backend; }
const CudaBackend& RegisteredCuda() { return Backend(); }

void ActivateCuda(int index) {
  if (Backend().activate != nullptr) Backend().activate(index);
}

void SynchronizeDevice(const Device& device) {
  if (device.type == DeviceType::kCuda) Backend().synchronize(device.index);
}

Status CheckDeviceAvailable(const Device& device) {
  if (device.type == DeviceType::kCuda) {
    if (Backend().check != nullptr) return Backend().check(device.index);
    return InvalidArgument(device, ": this program was built without CUDA");
  }
  return OkStatus();
}

}  // namespace tessera
