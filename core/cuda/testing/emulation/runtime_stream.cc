// SPDX-License-Identifier: Apache-2.0
// Emulated: streams and events.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "core/cuda/testing/emulation/machine.h"

using namespace tessera::cuda::emulation;  // NOLINT(build/namespaces): CUDA's functions are global

namespace {

// Whether the host may wait for the stream, or ask it.
cudaError_t CheckHostMayWait(cudaStream_t stream) {
  Machine& machine = Machine::Get();
  if (!machine.Knows(stream)) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return machine.CheckUnsafeCall(ThreadCaptureMode());
}
cudaError_t CheckHostMayWait(cudaEvent_t event) {
  if (event->capture != nullptr) {
    event->capture->invalid = true;
    return cudaErrorCapturedEvent;
  }
  return Machine::Get().CheckUnsafeCall(ThreadCaptureMode());
}

bool IsOver(const Capture& capture) {
  for (const std::shared_ptr<Capture>& open : Machine::Get().captures()) {
    if (open.get() == &capture) return false;
  }
  return true;
}

// What `stream` is given from now on comes after an event that was recorded in a capture.
cudaError_t WaitInCapture(cudaStream_t stream, cudaEvent_t event) {
  if (IsOver(*event->capture)) return cudaErrorCapturedEvent;
  if (event->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream->capture == nullptr) {
    // The stream joins the capture.
    stream->capture = event->capture;
    stream->capture->streams.insert(stream);
    stream->last = event->after;
    return cudaSuccess;
  }
  if (stream->capture != event->capture) {
    stream->capture->invalid = true;
    event->capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  for (const int node : event->after) {
    if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end()) {
      stream->last.push_back(node);
    }
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const auto lock = Machine::Get().Lock();
  // Streams that wait for CUDA's legacy stream are not emulated.
  if (flags != cudaStreamNonBlocking) return Result(cudaErrorInvalidValue);
  *stream = new CUstream_st{CurrentDevice(), {}, nullptr, {}};
  Machine::Get().Add(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  Machine& machine = Machine::Get();
  if (!machine.Knows(stream)) return Result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    stream->capture->streams.erase(stream);
  }
  machine.Drain(stream);
  machine.Remove(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  const cudaError_t error = CheckHostMayWait(stream);
  if (error != cudaSuccess) return Result(error);
  Machine::Get().Drain(stream);
  return cudaSuccess;
}

// A question gives the GPU time for one piece of work: a program that asks until it is done ends.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  const cudaError_t error = CheckHostMayWait(stream);
  if (error != cudaSuccess) return Result(error);
  return Result(Machine::Get().RunOne(stream) ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaDeviceSynchronize() {
  const auto lock = Machine::Get().Lock();
  Machine& machine = Machine::Get();
  for (const cudaStream_t stream : machine.streams()) {
    if (stream->device != CurrentDevice() || stream->capture == nullptr) continue;
    stream->capture->invalid = true;
    return Result(cudaErrorStreamCaptureUnsupported);
  }
  const cudaError_t error = machine.CheckUnsafeCall(ThreadCaptureMode());
  if (error != cudaSuccess) return Result(error);
  machine.DrainDevice(CurrentDevice());
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const auto lock = Machine::Get().Lock();
  if (!Machine::Get().Knows(stream)) return Result(cudaErrorInvalidResourceHandle);
  if (flags != 0) return Result(cudaErrorInvalidValue);
  if (event->capture != nullptr) return Result(WaitInCapture(stream, event));
  if (event->point == nullptr) return cudaSuccess;  // never recorded
  if (stream->capture != nullptr) {
    stream->capture->invalid = true;
    return Result(cudaErrorStreamCaptureIsolation);
  }
  return Result(Machine::Get().Enqueue(
      stream, [point = event->point] { Machine::Get().Reach(point.get()); }));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const auto lock = Machine::Get().Lock();
  *event =
      new CUevent_st{CurrentDevice(), (flags & cudaEventDisableTiming) == 0, nullptr, nullptr, {}};
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto lock = Machine::Get().Lock();
  delete event;  // what waits for it holds its point
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto lock = Machine::Get().Lock();
  Machine& machine = Machine::Get();
  if (!machine.Knows(stream) || stream->device != event->device) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture != nullptr) {
    if (stream->capture->invalid) return Result(cudaErrorStreamCaptureInvalidated);
    event->point = nullptr;
    event->capture = stream->capture;
    event->after = stream->last;
    return cudaSuccess;
  }
  auto point = std::make_shared<Point>();
  point->stream = stream;
  event->point = point;
  event->capture = nullptr;
  return Result(machine.Enqueue(stream, [point] {
    point->passed = true;
    point->time = std::chrono::steady_clock::now();
  }));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto lock = Machine::Get().Lock();
  const cudaError_t error = CheckHostMayWait(event);
  if (error != cudaSuccess) return Result(error);
  if (event->point == nullptr || event->point->passed) return cudaSuccess;
  Machine::Get().RunOne(event->point->stream);
  return Result(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto lock = Machine::Get().Lock();
  const cudaError_t error = CheckHostMayWait(event);
  if (error != cudaSuccess) return Result(error);
  if (event->point != nullptr) Machine::Get().Reach(event->point.get());
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto lock = Machine::Get().Lock();
  if (start->capture != nullptr || end->capture != nullptr) return Result(cudaErrorCapturedEvent);
  if (!start->timing || !end->timing || start->point == nullptr || end->point == nullptr) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  if (!start->point->passed || !end->point->passed) return Result(cudaErrorNotReady);
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->point->time - start->point->time).count();
  return cudaSuccess;
}
