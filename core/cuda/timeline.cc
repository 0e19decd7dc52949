// SPDX-License-Identifier: Apache-2.0
// When kernels ran on the GPU, for the profiler (core/profiler.h): an event on each side of them.
#include "core/cuda/stream.h"
#include "core/profiler.h"

namespace tessera::cuda {
namespace {

void* Mark(const Device& device) {
  ActivateDevice(device);
  auto* event = new Event(/*timing=*/true);
  event->Record(CurrentStream());
  return event;
}

double MicrosecondsBetween(void* from, void* to) {
  const Event& begin = *static_cast<Event*>(from);
  const Event& end = *static_cast<Event*>(to);
  begin.Synchronize();
  end.Synchronize();
  return 1e3 * static_cast<double>(end.MillisecondsSince(begin));
}

void Release(void* mark) { delete static_cast<Event*>(mark); }

[[maybe_unused]] const bool registered = [] {
  RegisterDeviceTimeline(
      DeviceType::kCuda,
      {.mark = Mark, .microseconds_between = MicrosecondsBetween, .release = Release});
  return true;
}();

}  // namespace
}  // namespace tessera::cuda
