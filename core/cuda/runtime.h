// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime with every call checked, and the GPUs of this machine.
//
//   CheckCuda(cudaMemsetAsync(p, 0, n, stream), "fill");   // throws Error("fill", ...) on failure
//   for (int i = 0; i < DeviceCount(); ++i) Print(Properties(i).name);
//
// Linking this makes `cuda:<index>` a device: its allocator, its availability
// (CheckDeviceAvailable) and its activation register themselves. No call touches the driver before
// something of a GPU is asked for.
#ifndef TESSERA_CORE_CUDA_RUNTIME_H_
#define TESSERA_CORE_CUDA_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/status.h"

namespace tessera::cuda {

// Throws Error(operation, what CUDA says). Errors of earlier kernels arrive here as well: CUDA
// reports them at the next call.
[[noreturn]] void ThrowCudaError(cudaError_t error, std::string_view operation);
inline void CheckCuda(cudaError_t error, std::string_view operation) {
  if (error != cudaSuccess) [[unlikely]] {
    ThrowCudaError(error, operation);
  }
}
// After a launch.
inline void CheckLaunch(std::string_view operation) { CheckCuda(cudaGetLastError(), operation); }

struct DeviceProperties {
  int index = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  size_t total_bytes = 0;
  size_t free_bytes = 0;
  int shared_bytes_per_block = 0;  // with opt-in
  int l2_bytes = 0;
};

// The GPUs that this process sees; 0 where there is no driver or none is fit for use.
int DeviceCount();
// Throws Error where `index` cannot be used.
DeviceProperties Properties(int index);
// Of this thread's active GPU; cached.
int MultiprocessorCount();
// Whether it reads the host's memory where it is, pinned or not (Grace, Linux's HMM).
bool ReadsPageableMemory();

// OK, or one line that says why `cuda:index` cannot be used.
Status CheckDevice(int index);
// Makes `index` the GPU of this thread's next calls; cheap when it is already.
void Activate(int index);
int ActiveDevice();

// One line per GPU: name, compute capability, memory; or why there is none.
std::string DescribeDevices();

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_RUNTIME_H_
