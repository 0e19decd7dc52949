// SPDX-License-Identifier: Apache-2.0
// The state behind the emulated CUDA runtime: GPUs, their memory, streams, events, captures.
//
// Work is lazy. A stream is a queue of closures, and one runs only when somebody waits for it: a
// stream that waits for an event of another runs that other as far as the event, and no further. A
// wait that the program forgot therefore shows as wrong data, every time.
//
// Everything here is reached under Machine::Lock(), also while closures run.
#ifndef TESSERA_CORE_CUDA_TESTING_EMULATION_MACHINE_H_
#define TESSERA_CORE_CUDA_TESTING_EMULATION_MACHINE_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace tessera::cuda::emulation {

using Work = std::function<void()>;

// Recorded work, and the nodes that must run before it.
struct Node {
  Work work;
  std::vector<int> after;
};

struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaStream_t origin;
  bool invalid = false;
  std::vector<Node> nodes;
  std::set<cudaStream_t> streams;
};

// Where an event was recorded in a stream.
struct Point {
  cudaStream_t stream;
  bool passed = false;
  std::chrono::steady_clock::time_point time;
};

enum class MemoryKind { kDevice, kPinned };
struct Allocation {
  size_t bytes;
  int device;
  MemoryKind kind;
};

class Machine {
 public:
  static Machine& Get();
  // What comes here needs a context of the thread's GPU.
  std::unique_lock<std::recursive_mutex> Lock();

  int device_count() const { return static_cast<int>(used_.size()); }
  size_t total_bytes() const { return total_bytes_; }
  // Whether copies read pageable memory when their turn comes, rather than at the call.
  bool reads_pageable_memory() const { return reads_pageable_memory_; }
  size_t& used(int device) { return used_[static_cast<size_t>(device)]; }

  // ---- Memory
  // nullptr where the host has none.
  void* Allocate(size_t bytes, int device, MemoryKind kind);
  // False for what is no allocation of that kind.
  bool Free(void* pointer, MemoryKind kind);
  // The allocation that holds [pointer, pointer + bytes), nullptr where none does.
  const Allocation* Find(const void* pointer, size_t bytes) const;

  // ---- Streams
  void Add(cudaStream_t stream) { streams_.insert(stream); }
  void Remove(cudaStream_t stream) { streams_.erase(stream); }
  bool Knows(cudaStream_t stream) const { return streams_.count(stream) != 0; }
  const std::set<cudaStream_t>& streams() const { return streams_; }
  // Runs the oldest work; false where there is none.
  bool RunOne(cudaStream_t stream);
  void Drain(cudaStream_t stream);
  void DrainDevice(int device);
  void Reach(Point* point);
  // As work of `stream`, or as a node of its capture.
  cudaError_t Enqueue(cudaStream_t stream, Work work);

  // ---- Captures
  std::set<std::shared_ptr<Capture>>& captures() { return captures_; }
  // What CUDA calls potentially unsafe: an error where a capture forbids it, which it also ends.
  cudaError_t CheckUnsafeCall(cudaStreamCaptureMode mode_of_thread);

 private:
  Machine();

  std::recursive_mutex mutex_;
  const size_t total_bytes_;
  const bool reads_pageable_memory_;
  std::vector<size_t> used_;
  std::map<uintptr_t, Allocation> allocations_;
  std::set<cudaStream_t> streams_;
  std::set<std::shared_ptr<Capture>> captures_;
  std::set<int> contexts_;  // the GPUs on which there is one
};

// Of this thread.
int CurrentDevice();
void SetCurrentDevice(int device);
cudaStreamCaptureMode& ThreadCaptureMode();
// Remembers an error for cudaGetLastError.
cudaError_t Result(cudaError_t error);
cudaError_t TakeLastError(bool clear);

}  // namespace tessera::cuda::emulation

// CUDA's opaque types.
struct CUstream_st {
  int device;
  std::deque<tessera::cuda::emulation::Work> queue;
  std::shared_ptr<tessera::cuda::emulation::Capture> capture;
  std::vector<int> last;  // of the capture's nodes, what the next one comes after
};
struct CUevent_st {
  int device;
  bool timing;
  std::shared_ptr<tessera::cuda::emulation::Point> point;      // recorded outside a capture
  std::shared_ptr<tessera::cuda::emulation::Capture> capture;  // or in this one
  std::vector<int> after;
};
struct CUgraph_st {
  std::vector<tessera::cuda::emulation::Node> nodes;
  std::vector<int> last;
};
struct CUgraphExec_st {
  std::shared_ptr<const std::vector<tessera::cuda::emulation::Work>> works;
};

#endif  // TESSERA_CORE_CUDA_TESTING_EMULATION_MACHINE_H_
