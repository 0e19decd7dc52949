// SPDX-License-Identifier: Apache-2.0
// Streams and events that own themselves, and the stream that this thread's kernels run on.
//
//   const Stream copies;                       // on the active GPU
//   const Event loaded;
//   { const StreamScope scope(copies.get()); CopyInto(gpu, pinned); }
//   loaded.Record(copies.get());
//   loaded.Block(CurrentStream());             // the GPU waits, not the host
//
// Every GPU has one compute stream, made when it is first asked for; kernels, copies and
// collectives order themselves after it. It is not CUDA's legacy stream, which cannot be captured.
#ifndef TESSERA_CORE_CUDA_STREAM_H_
#define TESSERA_CORE_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

namespace tessera::cuda {

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  // The host waits for all that the stream was given.
  void Synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
  int device_ = 0;
};

class Event {
 public:
  // Timing makes an event dearer; only those of measurements have it.
  explicit Event(bool timing = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }
  void Record(cudaStream_t stream) const;
  // What `stream` is given from now on waits for the recorded point.
  void Block(cudaStream_t stream) const;
  bool Passed() const;
  void Synchronize() const;
  // Milliseconds from `start` to this event; both with timing, both passed.
  float MillisecondsSince(const Event& start) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Of the active GPU: the one of the innermost StreamScope of this thread, else the compute stream.
cudaStream_t CurrentStream();
cudaStream_t ComputeStream(int device);

class StreamScope {
 public:
  explicit StreamScope(cudaStream_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  cudaStream_t before_;
};

// The host waits for the current stream.
void SynchronizeCurrent(const char* operation);

}  // namespace tessera::cuda

#endif  // TESSERA_CORE_CUDA_STREAM_H_
