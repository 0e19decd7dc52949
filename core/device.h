// SPDX-License-Identifier: Apache-2.0
// Where a tensor lives: `cpu`, `cuda:0`, or `meta:cpu`, `meta:cuda` and `meta:host`, which have
// shapes and counted bytes but no data and imitate the device they are named after.
//
// `host` is CPU memory that belongs to no computation: what is off-loaded from the compute device
// lies there, with an allocator (and a limit) of its own, also where the CPU is what computes. The
// CPU's kernels work on it; `is_cpu()` holds.
#ifndef TESSERA_CORE_DEVICE_H_
#define TESSERA_CORE_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

enum class DeviceType : uint8_t { kCpu, kCuda, kMeta };
inline constexpr int kNumDeviceTypes = 3;

// Where a tensor lies and what computes on it.
struct Device {
  DeviceType type = DeviceType::kCpu;
  // The device that a meta tensor imitates (same workspaces, same allocator rounding).
  DeviceType target = DeviceType::kCpu;
  int index = 0;

  static constexpr Device Cpu() { return {}; }
  static constexpr Device Host() { return {DeviceType::kCpu, DeviceType::kCpu, 1}; }
  static constexpr Device Cuda(int index) { return {DeviceType::kCuda, DeviceType::kCuda, index}; }
  static constexpr Device Meta(DeviceType target = DeviceType::kCpu) {
    return {DeviceType::kMeta, target, 0};
  }

  bool is_cpu() const { return type == DeviceType::kCpu; }
  bool is_host() const { return *this == Host(); }
  bool is_meta() const { return type == DeviceType::kMeta; }
  friend bool operator==(const Device&, const Device&) = default;

  // "cpu", "host", "cuda:0", "meta:cpu".
  std::string ToString() const;
  // Reads the names above; `cuda` means `cuda:0`, `meta` means `meta:cpu`.
  static StatusOr<Device> Parse(std::string_view name);
};

// As ToString has it.
inline TextBuilder& operator<<(TextBuilder& text, const Device& d) { return text << d.ToString(); }

// OK when tensors can be made on `device` by this program on this machine; otherwise one line that
// says why ("cuda:0: this program was built without CUDA").
Status CheckDeviceAvailable(const Device& device);

class DeviceGraph;  // core/device_graph.h

// What core/cuda adds to a program that is built with it; null members otherwise.
struct CudaBackend {
  // OK when GPU `index` can be used, else one line that begins with its name.
  Status (*check)(int index) = nullptr;
  // Makes `index` the GPU that this thread's next launches go to.
  void (*activate)(int index) = nullptr;
  // Waits until GPU `index` has done what its compute stream was given.
  void (*synchronize)(int index) = nullptr;
  // Records what `work` gives to the compute stream of GPU `index`.
  std::unique_ptr<DeviceGraph> (*record)(int index, const std::function<void()>& work) = nullptr;
};
void RegisterCudaBackend(const CudaBackend& backend);
const CudaBackend& RegisteredCuda();

// Called before a kernel of `device` runs on this thread.
void ActivateCuda(int index);
inline void ActivateDevice(const Device& device) {
  if (device.type == DeviceType::kCuda) ActivateCuda(device.index);
}

// Waits until `device` has done all that it was given; for those who take its time.
void SynchronizeDevice(const Device& device);

}  // namespace tessera

#endif  // TESSERA_CORE_DEVICE_H_
