// How an operation finds its kernel: one signature, one entry per device type.
//
//   // softmax_kernel.h
//   inline KernelTable<SoftmaxArgs> softmax_forward{"softmax"};
//   // softmax_cpu.cc (alwayslink)
//   void SoftmaxForwardCpu(const SoftmaxArgs& args) {...}
//   TESSERA_REGISTER_KERNEL(softmax_forward, DeviceType::kCpu, SoftmaxForwardCpu);
//   // softmax.cc
//   softmax_forward.Launch(x.device(), {...});
//
// A program linked without CUDA has an empty entry there and answers with the operation's name and
// what is registered. On `meta` a launch does nothing: shapes and workspaces are the operation's.
#ifndef TESSERA_CORE_KERNEL_TABLE_H_
#define TESSERA_CORE_KERNEL_TABLE_H_

#include <string>

#include "core/device.h"
#include "core/error.h"
#include "core/profiler.h"

namespace tessera {

template <typename Args>
class KernelTable {
 public:
  using Fn = void (*)(const Args&);
  constexpr explicit KernelTable(const char* name) : name_(name) {}

  void Register(DeviceType type, Fn fn) { fns_[static_cast<int>(type)] = fn; }
  bool Supports(const Device& device) const {
    return device.is_meta() || fns_[static_cast<int>(device.type)] != nullptr;
  }
  // The kernel of a device that holds data; the device becomes the thread's active one.
  Fn For(const Device& device) const {
    const Fn fn = fns_[static_cast<int>(device.type)];
    TESSERA_CHECK(fn != nullptr, name_, "no kernel for ", device, "; registered: ", Registered());
    ActivateDevice(device);
    return fn;
  }
  void Launch(const Device& device, const Args& args) const {
    if (device.is_meta()) return;
    const ProfileSpan span("kernel", name_, device);
    For(device)(args);
  }
  const char* name() const { return name_; }

 private:
  std::string Registered() const {
    std::string names;
    if (fns_[static_cast<int>(DeviceType::kCpu)] != nullptr) names += " cpu";
    if (fns_[static_cast<int>(DeviceType::kCuda)] != nullptr) names += " cuda";
    return names.empty() ? "none" : names.substr(1);
  }

  const char* name_;
  Fn fns_[kNumDeviceTypes] = {};
};

struct KernelRegistration {
  template <typename Args>
  KernelRegistration(KernelTable<Args>& table, DeviceType type, void (*fn)(const Args&)) {
    table.Register(type, fn);
  }
};

}  // namespace tessera

#define TESSERA_REGISTER_KERNEL(table, device_type, fn) \
  static const ::tessera::KernelRegistration tessera_registration_##fn((table), (device_type), (fn))

#endif  // TESSERA_CORE_KERNEL_TABLE_H_
