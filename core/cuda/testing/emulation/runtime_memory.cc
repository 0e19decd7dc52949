// SPDX-License-Identifier: Apache-2.0
// Emulated: memory and copies.
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "core/cuda/testing/emulation/machine.h"

using namespace tessera::cuda::emulation;  // NOLINT(build/namespaces): CUDA's functions are global

namespace {

enum class Place { kPageable, kPinned, kDevice, kNowhere };

// Where [pointer, pointer + bytes) lies; nowhere, where it leaves the allocation it begins in.
Place PlaceOf(const void* pointer, size_t bytes) {
  const Machine& machine = Machine::Get();
  if (const Allocation* found = machine.Find(pointer, bytes)) {
    return found->kind == MemoryKind::kDevice ? Place::kDevice : Place::kPinned;
  }
  return machine.Find(pointer, 1) != nullptr ? Place::kNowhere : Place::kPageable;
}

bool KindAgrees(cudaMemcpyKind kind, Place to, Place from) {
  const bool to_device = to == Place::kDevice;
  const bool from_device = from == Place::kDevice;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    default:
      return kind == cudaMemcpyDefault;
  }
}

cudaError_t CopyBytes(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                      cudaStream_t stream) {
  Machine& machine = Machine::Get();
  if (bytes == 0) return cudaSuccess;
  if (!machine.Knows(stream)) return cudaErrorInvalidResourceHandle;
  const Place to = PlaceOf(dst, bytes);
  const Place from = PlaceOf(src, bytes);
  if (dst == nullptr || src == nullptr || to == Place::kNowhere || from == Place::kNowhere ||
      !KindAgrees(kind, to, from)) {
    return cudaErrorInvalidValue;
  }
  const bool pageable = to == Place::kPageable || from == Place::kPageable;
  if (pageable && stream->capture != nullptr) {
    // CUDA would read or write the host's memory at every replay, wherever it is by then.
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (to == Place::kPageable) {
    // The call returns when the copy is done.
    machine.Drain(stream);
    std::memcpy(dst, src, bytes);
    return cudaSuccess;
  }
  if (from == Place::kPageable && !machine.reads_pageable_memory()) {
    const auto* begin = static_cast<const char*>(src);
    return machine.Enqueue(stream, [dst, staged = std::vector<char>(begin, begin + bytes)] {
      std::memcpy(dst, staged.data(), staged.size());
    });
  }
  return machine.Enqueue(stream, [dst, src, bytes] { std::memmove(dst, src, bytes); });
}

}  // namespace

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const auto lock = Machine::Get().Lock();
  *pointer = nullptr;
  const cudaError_t unsafe = Machine::Get().CheckUnsafeCall(ThreadCaptureMode());
  if (unsafe != cudaSuccess) return Result(unsafe);
  if (bytes == 0) return cudaSuccess;
  *pointer = Machine::Get().Allocate(bytes, CurrentDevice(), MemoryKind::kDevice);
  return Result(*pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* pointer) {
  const auto lock = Machine::Get().Lock();
  if (pointer == nullptr) return cudaSuccess;
  Machine& machine = Machine::Get();
  const cudaError_t unsafe = machine.CheckUnsafeCall(ThreadCaptureMode());
  if (unsafe != cudaSuccess) return Result(unsafe);
  const Allocation* found = machine.Find(pointer, 1);
  if (found == nullptr) return Result(cudaErrorInvalidValue);
  machine.DrainDevice(found->device);
  return Result(machine.Free(pointer, MemoryKind::kDevice) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  const auto lock = Machine::Get().Lock();
  *pointer = nullptr;
  const cudaError_t unsafe = Machine::Get().CheckUnsafeCall(ThreadCaptureMode());
  if (unsafe != cudaSuccess) return Result(unsafe);
  if (bytes == 0) return cudaSuccess;
  *pointer = Machine::Get().Allocate(bytes, CurrentDevice(), MemoryKind::kPinned);
  return Result(*pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void* pointer) {
  const auto lock = Machine::Get().Lock();
  if (pointer == nullptr) return cudaSuccess;
  Machine& machine = Machine::Get();
  const cudaError_t unsafe = machine.CheckUnsafeCall(ThreadCaptureMode());
  if (unsafe != cudaSuccess) return Result(unsafe);
  for (int device = 0; device < machine.device_count(); ++device) machine.DrainDevice(device);
  return Result(machine.Free(pointer, MemoryKind::kPinned) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const auto lock = Machine::Get().Lock();
  *total = Machine::Get().total_bytes();
  *free = *total - Machine::Get().used(CurrentDevice());
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const auto lock = Machine::Get().Lock();
  *attributes = {};
  const Allocation* found = Machine::Get().Find(pointer, 1);
  if (found == nullptr) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    return cudaSuccess;
  }
  const bool on_device = found->kind == MemoryKind::kDevice;
  attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = found->device;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (!on_device) attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  return Result(CopyBytes(dst, src, bytes, kind, stream));
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                size_t bytes, cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  const Allocation* to = Machine::Get().Find(dst, bytes);
  const Allocation* from = Machine::Get().Find(src, bytes);
  if (to == nullptr || from == nullptr || to->device != dst_device || from->device != src_device) {
    return Result(cudaErrorInvalidValue);
  }
  return Result(CopyBytes(dst, src, bytes, cudaMemcpyDeviceToDevice, stream));
}

cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  if (bytes == 0) return cudaSuccess;
  if (PlaceOf(dst, bytes) != Place::kDevice) return Result(cudaErrorInvalidValue);
  return Result(
      Machine::Get().Enqueue(stream, [dst, value, bytes] { std::memset(dst, value, bytes); }));
}
