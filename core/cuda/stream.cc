// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/stream.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/cuda/runtime.h"

namespace tessera::cuda {
namespace {

thread_local cudaStream_t scoped_stream = nullptr;

}  // namespace

Stream::Stream() : device_(ActiveDevice()) {
  CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
}
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::Synchronize() const { CheckCuda(cudaStreamSynchronize(stream_), "stream"); }

Event::Event(bool timing) {
  ActiveDevice();
  CheckCuda(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming),
            "event");
}
Event::~Event() { cudaEventDestroy(event_); }
void Event::Record(cudaStream_t stream) const {
  CheckCuda(cudaEventRecord(event_, stream), "event");
}
void Event::Block(cudaStream_t stream) const {
  CheckCuda(cudaStreamWaitEvent(stream, event_, 0), "event");
}
bool Event::Passed() const {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // not ready is no failure of the next launch
    return false;
  }
  CheckCuda(error, "event");
  return true;
}
void Event::Synchronize() const { CheckCuda(cudaEventSynchronize(event_), "event"); }
float Event::MillisecondsSince(const Event& start) const {
  float milliseconds = 0;
  CheckCuda(cudaEventElapsedTime(&milliseconds, start.event_, event_), "event");
  return milliseconds;
}

cudaStream_t ComputeStream(int device) {
  static std::mutex mutex;
  // Never destroyed: tensors with static storage duration outlive any static destructor.
  static auto* streams = new std::map<int, cudaStream_t>;
  thread_local int known_device = -1;
  thread_local cudaStream_t known = nullptr;
  if (device == known_device) return known;
  std::lock_guard<std::mutex> lock(mutex);
  cudaStream_t& stream = (*streams)[device];
  if (stream == nullptr) {
    const int active = ActiveDevice();
    Activate(device);
    CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    Activate(active);
  }
  known_device = device;
  known = stream;
  return stream;
}

cudaStream_t CurrentStream() {
  return scoped_stream != nullptr ? scoped_stream : ComputeStream(ActiveDevice());
}

StreamScope::StreamScope(cudaStream_t stream) : before_(std::exchange(scoped_stream, stream)) {}
StreamScope::~StreamScope() { scoped_stream = before_; }

void SynchronizeCurrent(const char* operation) {
  CheckCuda(cudaStreamSynchronize(CurrentStream()), operation);
}

}  // namespace tessera::cuda
