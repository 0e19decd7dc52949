// SPDX-License-Identifier: Apache-2.0
// Emulated: devices, errors, and launches of kernels.
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>

#include "core/cuda/testing/emulation/machine.h"
#include "core/cuda/testing/emulation/work.h"

namespace tessera::cuda::emulation {
namespace {

constexpr int kMultiprocessors = 2;  // few: a grid that fills the GPU is small
constexpr size_t kSharedUnasked = 48 << 10;
constexpr size_t kSharedMost = 227 << 10;
constexpr unsigned kMostThreads = 1024;

// What cudaFuncSetAttribute allowed.
std::map<const void*, size_t>& AllowedShared() {
  static auto* allowed = new std::map<const void*, size_t>;
  return *allowed;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define TESSERA_ERROR_(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    TESSERA_ERROR_(cudaSuccess, "no error"),
    TESSERA_ERROR_(cudaErrorInvalidValue, "invalid argument"),
    TESSERA_ERROR_(cudaErrorMemoryAllocation, "out of memory"),
    TESSERA_ERROR_(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TESSERA_ERROR_(cudaErrorInvalidDevice, "invalid device ordinal"),
    TESSERA_ERROR_(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TESSERA_ERROR_(cudaErrorIllegalState, "the operation cannot be performed in this state"),
    TESSERA_ERROR_(cudaErrorNotReady, "device not ready"),
    TESSERA_ERROR_(cudaErrorStreamCaptureUnsupported,
                   "operation not permitted when stream is capturing"),
    TESSERA_ERROR_(cudaErrorStreamCaptureInvalidated,
                   "operation failed due to a previous error during capture"),
    TESSERA_ERROR_(cudaErrorStreamCaptureMerge, "operation would merge two captures"),
    TESSERA_ERROR_(cudaErrorStreamCaptureUnmatched, "capture was not begun in this stream"),
    TESSERA_ERROR_(cudaErrorStreamCaptureUnjoined,
                   "capture ends while work of another stream is not joined"),
    TESSERA_ERROR_(cudaErrorStreamCaptureIsolation,
                   "dependency created on uncaptured work in another stream"),
    TESSERA_ERROR_(cudaErrorCapturedEvent,
                   "operation not permitted on an event last recorded in a capturing stream"),
    TESSERA_ERROR_(cudaErrorStreamCaptureWrongThread,
                   "capture was begun by another thread and not relaxed"),
};
#undef TESSERA_ERROR_

const ErrorText* Find(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

bool IsDevice(int device) { return device >= 0 && device < Machine::Get().device_count(); }

cudaError_t CheckShape(const void* function, const GridShape& shape) {
  const auto fits = [](const dim3& d, unsigned x, unsigned y, unsigned z) {
    return d.x >= 1 && d.y >= 1 && d.z >= 1 && d.x <= x && d.y <= y && d.z <= z;
  };
  const bool good = fits(shape.blocks, 0x7fffffffu, 65535, 65535) &&
                    fits(shape.threads, kMostThreads, kMostThreads, 64) &&
                    shape.threads.x * shape.threads.y * shape.threads.z <= kMostThreads;
  if (!good) return cudaErrorInvalidConfiguration;
  const auto found = AllowedShared().find(function);
  const size_t most = found == AllowedShared().end() ? kSharedUnasked : found->second;
  return shape.shared_bytes <= most ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t Enqueue(cudaStream_t stream, std::function<void()> work) {
  const auto lock = Machine::Get().Lock();
  return Result(Machine::Get().Enqueue(stream, std::move(work)));
}

cudaError_t EnqueueGrid(const void* function, const GridShape& shape, cudaStream_t stream,
                        std::function<void()> thread) {
  const auto lock = Machine::Get().Lock();
  if (!Machine::Get().Knows(stream) || stream->device != CurrentDevice()) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  const cudaError_t error = CheckShape(function, shape);
  if (error != cudaSuccess) return Result(error);
  return Result(Machine::Get().Enqueue(
      stream, [shape, thread = std::move(thread)] { RunGrid(shape, thread); }));
}

}  // namespace tessera::cuda::emulation

using namespace tessera::cuda::emulation;  // NOLINT(build/namespaces): CUDA's functions are global

cudaError_t cudaGetLastError() { return TakeLastError(/*clear=*/true); }
cudaError_t cudaPeekAtLastError() { return TakeLastError(/*clear=*/false); }

const char* cudaGetErrorName(cudaError_t error) {
  const auto* known = tessera::cuda::emulation::Find(error);
  return known != nullptr ? known->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  const auto* known = tessera::cuda::emulation::Find(error);
  return known != nullptr ? known->text : "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Machine::Get().device_count();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!IsDevice(device)) return Result(cudaErrorInvalidDevice);
  SetCurrentDevice(device);
  const auto lock = Machine::Get().Lock();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!IsDevice(device)) return Result(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = kMultiprocessors;
      return cudaSuccess;
    case cudaDevAttrPageableMemoryAccess:
      *value = Machine::Get().reads_pageable_memory() ? 1 : 0;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kSharedMost);
      return cudaSuccess;
    default:
      return Result(cudaErrorInvalidValue);
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (!IsDevice(device)) return Result(cudaErrorInvalidDevice);
  *prop = {};
  std::strcpy(prop->name, "Emulated GPU");
  prop->uuid.bytes[0] = static_cast<char>(device + 1);
  prop->major = 9;
  prop->minor = 0;
  prop->multiProcessorCount = kMultiprocessors;
  prop->totalGlobalMem = Machine::Get().total_bytes();
  prop->sharedMemPerBlock = kSharedUnasked;
  prop->sharedMemPerBlockOptin = kSharedMost;
  prop->maxThreadsPerBlock = static_cast<int>(kMostThreads);
  prop->warpSize = kWarpLanes;
  prop->l2CacheSize = 1 << 20;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const auto lock = Machine::Get().Lock();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > kSharedMost) {
    return Result(cudaErrorInvalidValue);
  }
  AllowedShared()[function] = static_cast<size_t>(value);
  return cudaSuccess;
}
