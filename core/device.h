// Where a tensor lives: `cpu`, `cuda:0`, or `meta:cpu` / `meta:cuda`, which have shapes and counted
// bytes but no data and imitate the device they are named after.
#ifndef TESSERA_CORE_DEVICE_H_
#define TESSERA_CORE_DEVICE_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tessera {

enum class DeviceType : uint8_t { kCpu, kCuda, kMeta };
inline constexpr int kNumDeviceTypes = 3;

struct Device {
  DeviceType type = DeviceType::kCpu;
  // The device that a meta tensor imitates (same workspaces, same allocator rounding).
  DeviceType target = DeviceType::kCpu;
  int index = 0;

  static constexpr Device Cpu() { return {}; }
  static constexpr Device Cuda(int index) { return {DeviceType::kCuda, DeviceType::kCuda, index}; }
  static constexpr Device Meta(DeviceType target = DeviceType::kCpu) {
    return {DeviceType::kMeta, target, 0};
  }

  bool is_cpu() const { return type == DeviceType::kCpu; }
  bool is_meta() const { return type == DeviceType::kMeta; }
  friend bool operator==(const Device&, const Device&) = default;

  // "cpu", "cuda:0", "meta:cpu".
  std::string ToString() const;
  // Reads the names above; `cuda` means `cuda:0`, `meta` means `meta:cpu`.
  static absl::StatusOr<Device> Parse(std::string_view name);
};

inline std::ostream& operator<<(std::ostream& out, const Device& d) { return out << d.ToString(); }

// OK when tensors can be made on `device` by this program on this machine; otherwise one line that
// says why ("cuda:0: this program was built without CUDA").
absl::Status CheckDeviceAvailable(const Device& device);

}  // namespace tessera

#endif  // TESSERA_CORE_DEVICE_H_
