// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/testing/emulation/machine.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

namespace tessera::cuda::emulation {
namespace {

constexpr size_t kAlignment = 512;

// A positive number from the environment.
size_t Setting(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*end != 0 || value == 0 || *text == '-') {
    std::fprintf(stderr, "%s: a positive whole number, not '%s'\n", name, text);
    std::exit(1);
  }
  return static_cast<size_t>(value);
}

}  // namespace

Machine& Machine::Get() {
  static auto* machine = new Machine;
  return *machine;
}

Machine::Machine()
    : total_bytes_(Setting("TESSERA_EMULATED_GPU_MEMORY_MIB", 2048) << 20),
      reads_pageable_memory_(std::getenv("TESSERA_EMULATED_GPU_READS_HOST") != nullptr),
      used_(Setting("TESSERA_EMULATED_GPUS", 1)) {}

std::unique_lock<std::recursive_mutex> Machine::Lock() {
  std::unique_lock lock(mutex_);
  const char* file = std::getenv("TESSERA_EMULATION_CONTEXTS");
  if (contexts_.insert(CurrentDevice()).second && file != nullptr) {
    std::ofstream(file, std::ios::app) << getpid() << ' ' << CurrentDevice() << std::endl;
  }
  return lock;
}

void* Machine::Allocate(size_t bytes, int device, MemoryKind kind) {
  const bool on_device = kind == MemoryKind::kDevice;
  if (on_device && (bytes > total_bytes_ || used(device) + bytes > total_bytes_)) return nullptr;
  void* pointer = nullptr;
  if (posix_memalign(&pointer, kAlignment, bytes) != 0) return nullptr;
  std::memset(pointer, 0xff, bytes);
  if (on_device) used(device) += bytes;
  allocations_[reinterpret_cast<uintptr_t>(pointer)] = {bytes, device, kind};
  return pointer;
}

bool Machine::Free(void* pointer, MemoryKind kind) {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == allocations_.end() || found->second.kind != kind) return false;
  if (kind == MemoryKind::kDevice) used(found->second.device) -= found->second.bytes;
  allocations_.erase(found);
  std::free(pointer);
  return true;
}

const Allocation* Machine::Find(const void* pointer, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  --next;
  const uintptr_t end = next->first + next->second.bytes;
  return address < end && bytes <= end - address ? &next->second : nullptr;
}

bool Machine::RunOne(cudaStream_t stream) {
  if (stream->queue.empty()) return false;
  // Off the queue first: the work may come back to this stream, for what lies before it.
  const Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  work();
  return true;
}

void Machine::Drain(cudaStream_t stream) {
  while (RunOne(stream)) continue;
}

void Machine::DrainDevice(int device) {
  for (const cudaStream_t stream : streams_) {
    if (stream->device == device) Drain(stream);
  }
}

void Machine::Reach(Point* point) {
  while (!point->passed) RunOne(point->stream);
}

cudaError_t Machine::Enqueue(cudaStream_t stream, Work work) {
  if (!Knows(stream)) return cudaErrorInvalidResourceHandle;
  if (stream->capture == nullptr) {
    stream->queue.push_back(std::move(work));
    return cudaSuccess;
  }
  Capture& capture = *stream->capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  const auto node = static_cast<int>(capture.nodes.size());
  capture.nodes.push_back({std::move(work), stream->last});
  stream->last = {node};
  return cudaSuccess;
}

cudaError_t Machine::CheckUnsafeCall(cudaStreamCaptureMode mode) {
  if (mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t error = cudaSuccess;
  for (const std::shared_ptr<Capture>& capture : captures_) {
    const bool forbids =
        capture->thread == std::this_thread::get_id()
            ? capture->mode != cudaStreamCaptureModeRelaxed
            : mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!forbids) continue;
    capture->invalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

namespace {
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
}  // namespace

int CurrentDevice() { return current_device; }
void SetCurrentDevice(int device) { current_device = device; }
cudaStreamCaptureMode& ThreadCaptureMode() { return capture_mode; }
cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
cudaError_t TakeLastError(bool clear) {
  return clear ? std::exchange(last_error, cudaSuccess) : last_error;
}

}  // namespace tessera::cuda::emulation
