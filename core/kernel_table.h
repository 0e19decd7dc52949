// SPDX-License-Identifier: Apache-2.0
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
// what is registered.
//
// Workspace. What a kernel needs beside its operands is a function of the arguments' shapes,
// strides and dtypes, registered per device type where it is compiled into every program:
//
//   TESSERA_REGISTER_WORKSPACE(sum_kernel, DeviceType::kCuda, SumWorkspace);
//
// The kernel takes that many bytes in one piece; a launch on the `meta` device of that target does
// nothing but count them, so that the peak of a dry run is the real one.
#ifndef TESSERA_CORE_KERNEL_TABLE_H_
#define TESSERA_CORE_KERNEL_TABLE_H_

#include <cstddef>

#include "base/error.h"
#include "core/allocator.h"
#include "core/device.h"
#include "core/execution_context.h"
#include "core/kernel_work.h"
#include "core/profiler.h"

namespace tessera {

// What is the same for kernels of all arguments.
class AnyKernelTable {
 public:
  bool Supports(const Device& device) const {
    return device.is_meta() || fns_[static_cast<int>(device.type)] != nullptr;
  }
  const char* name() const { return name_; }

 protected:
  using AnyFn = void (*)();  // a function of the table's own type
  constexpr explicit AnyKernelTable(const char* name) : name_(name) {}

  void AddKernel(DeviceType type, AnyFn fn);
  // The kernel of a device that holds data, which becomes the thread's active one.
  AnyFn KernelOf(const Device& device) const;
  static void CountWorkspace(const Device& meta, size_t bytes);

  AnyFn workspaces_[kNumDeviceTypes] = {};

 private:
  const char* name_;
  AnyFn fns_[kNumDeviceTypes] = {};
  bool twice_ = false;
};

template <typename Args>
class KernelTable : public AnyKernelTable {
 public:
  using Fn = void (*)(const Args&);
  // Pointers in the arguments may be null.
  using WorkspaceFn = size_t (*)(const Args&);
  constexpr explicit KernelTable(const char* name) : AnyKernelTable(name) {}

  // Before main, where nothing can be reported: a second kernel is told at the first launch.
  void Register(DeviceType type, Fn fn) { AddKernel(type, reinterpret_cast<AnyFn>(fn)); }
  void RegisterWorkspace(DeviceType type, WorkspaceFn fn) {
    workspaces_[static_cast<int>(type)] = reinterpret_cast<AnyFn>(fn);
  }
  // The kernel of a device that holds data; the device becomes the thread's active one.
  Fn For(const Device& device) const { return reinterpret_cast<Fn>(KernelOf(device)); }
  void Launch(const Device& device, const Args& args) const {
    if (device.is_meta()) return CountWorkspace(device, WorkspaceBytes(device.target, args));
    StopIfCancelled();
    ProfileSpan span("kernel", name(), device);
    if constexpr (requires { WorkOf(args); }) {
      if (span.records()) span.Note(WorkOf(args));
    }
    For(device)(args);
  }
  // Bytes of workspace of the kernel of a device type.
  size_t WorkspaceBytes(DeviceType type, const Args& args) const {
    const auto fn = reinterpret_cast<WorkspaceFn>(workspaces_[static_cast<int>(type)]);
    return fn == nullptr ? 0 : fn(args);
  }
};

// Adds a kernel to its table before main (TESSERA_REGISTER_KERNEL).
struct KernelRegistration {
  template <typename Args>
  KernelRegistration(KernelTable<Args>& table, DeviceType type, void (*fn)(const Args&)) {
    table.Register(type, fn);
  }
};

// Likewise the memory that a kernel needs beside its operands (TESSERA_REGISTER_WORKSPACE).
struct WorkspaceRegistration {
  template <typename Args>
  WorkspaceRegistration(KernelTable<Args>& table, DeviceType type, size_t (*fn)(const Args&)) {
    table.RegisterWorkspace(type, fn);
  }
};

}  // namespace tessera

#define TESSERA_REGISTER_KERNEL(table, device_type, fn)                                           \
  static const ::tessera::KernelRegistration tessera_registration_##table((table), (device_type), \
                                                                          (fn))
#define TESSERA_REGISTER_WORKSPACE(table, device_type, fn)                                        \
  static const ::tessera::WorkspaceRegistration tessera_workspace_##table((table), (device_type), \
                                                                          (fn))

#endif  // TESSERA_CORE_KERNEL_TABLE_H_
