// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/runtime.h"

#include <algorithm>
#include <vector>

#include "core/cuda/device_problem.h"
#include "core/cuda/graph.h"
#include "core/cuda/stream.h"
#include "core/device.h"

namespace tessera::cuda {
namespace {

DeviceProbe Probe(int index) {
  DeviceProbe probe;
  cudaDriverGetVersion(&probe.driver_version);
  probe.runtime_version = CUDART_VERSION;
  const cudaError_t error = cudaGetDeviceCount(&probe.devices);
  switch (error) {
    case cudaSuccess:
      break;
    case cudaErrorNoDevice:
      probe.answer = DeviceProbe::Answer::kNoDevice;
      break;
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      probe.answer = DeviceProbe::Answer::kDriverTooOld;
      break;
    default:
      probe.answer = DeviceProbe::Answer::kOther;
      probe.text = cudaGetErrorString(error);
  }
  if (error != cudaSuccess) {
    probe.devices = 0;
    cudaGetLastError();  // else the next launch would report it
  } else if (index >= 0 && index < probe.devices) {
    cudaDeviceGetAttribute(&probe.major, cudaDevAttrComputeCapabilityMajor, index);
    cudaDeviceGetAttribute(&probe.minor, cudaDevAttrComputeCapabilityMinor, index);
  }
  return probe;
}

thread_local int active_device = -1;

int Attribute(cudaDeviceAttr attribute, int index) {
  int value = 0;
  CheckCuda(cudaDeviceGetAttribute(&value, attribute, index), "device properties");
  return value;
}

const bool registered = [] {
  RegisterCudaBackend(
      {.check = CheckDevice,
       .activate = Activate,
       .synchronize =
           [](int index) { CheckCuda(cudaStreamSynchronize(ComputeStream(index)), "synchronize"); },
       .record = Record});
  return true;
}();

}  // namespace

void ThrowCudaError(cudaError_t error, std::string_view operation) {
  cudaGetLastError();
  throw Error(operation,
              Concat("CUDA says: ", cudaGetErrorName(error), ": ", cudaGetErrorString(error)));
}

int DeviceCount() { return Probe(0).devices; }

DeviceProperties Properties(int index) {
  Activate(index);
  cudaDeviceProp prop;
  CheckCuda(cudaGetDeviceProperties(&prop, index), "device properties");
  DeviceProperties p;
  p.index = index;
  p.name = prop.name;
  p.major = prop.major;
  p.minor = prop.minor;
  p.multiprocessors = prop.multiProcessorCount;
  p.shared_bytes_per_block = static_cast<int>(prop.sharedMemPerBlockOptin);
  p.l2_bytes = prop.l2CacheSize;
  CheckCuda(cudaMemGetInfo(&p.free_bytes, &p.total_bytes), "device properties");
  return p;
}

namespace {

// Of the active GPU, asked for when a thread's GPU is another one than before.
template <cudaDeviceAttr kAttribute>
int CachedAttribute() {
  thread_local int device = -1;
  thread_local int value = 0;
  const int active = ActiveDevice();
  if (device != active) {
    value = Attribute(kAttribute, active);
    device = active;
  }
  return value;
}

}  // namespace

int MultiprocessorCount() { return CachedAttribute<cudaDevAttrMultiProcessorCount>(); }
bool ReadsPageableMemory() { return CachedAttribute<cudaDevAttrPageableMemoryAccess>() != 0; }

Status CheckDevice(int index) {
  const std::string problem = DeviceProblem(Probe(index), index);
  return problem.empty() ? OkStatus() : InvalidArgument(problem);
}

void Activate(int index) {
  if (index == active_device) return;
  CheckCuda(cudaSetDevice(index), Concat("cuda:", index));
  active_device = index;
}

int ActiveDevice() {
  if (active_device < 0) Activate(0);
  return active_device;
}

std::string DescribeDevices() {
  const DeviceProbe probe = Probe(0);
  if (probe.devices == 0) return DeviceProblem(probe, 0) + "\n";
  std::string text;
  for (int i = 0; i < probe.devices; ++i) {
    const std::string problem = DeviceProblem(Probe(i), i);
    if (!problem.empty()) {
      text += problem + "\n";
      continue;
    }
    const DeviceProperties p = Properties(i);
    const auto gib = [](size_t bytes) { return static_cast<double>(bytes * 10 >> 30) / 10.0; };
    text += Concat("cuda:", i, ": ", p.name, ", compute capability ", p.major, ".", p.minor, ", ",
                   p.multiprocessors, " multiprocessors, ", gib(p.free_bytes), " of ",
                   gib(p.total_bytes), " GiB free\n");
  }
  return text;
}

}  // namespace tessera::cuda
