// SPDX-License-Identifier: Apache-2.0
// Where the time of a program goes: spans on a timeline, written as a Chrome trace.
//
//   StartProfiler();
//   ...                                              // one training step, say
//   const Profile profile = StopProfiler();
//   TESSERA_RETURN_IF_ERROR(profile.WriteChromeTrace("trace.json", /*process=*/rank));
//   for (const ProfileTotal& t : profile.Totals("kernel")) ...      // costliest first
//
// A trace is opened in chrome://tracing or ui.perfetto.dev. Kernels, nodes of the backward pass and
// modules mark themselves; other code does so with
//
//   const ProfileSpan span("data", "load");
//
// A span takes the time of its scope on the calling thread, and one relaxed load where nothing
// profiles. On a device whose kernels run behind the host's back, spans of the category "kernel"
// are those of the device (DeviceTimeline). The memory in use is noted after each kernel.
#ifndef TESSERA_CORE_PROFILER_H_
#define TESSERA_CORE_PROFILER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/device.h"
#include "core/kernel_work.h"

namespace tessera {

struct ProfileEvent {
  std::string name;
  std::string category;
  int thread = 0;       // counted in the order in which threads came
  double begin_us = 0;  // since StartProfiler
  double duration_us = 0;
  int64_t memory_bytes = -1;  // the device's memory in use at its end; -1: not noted
  KernelWork work = {};       // of a kernel
};

struct ProfileTotal {
  std::string name;
  int64_t calls = 0;
  double total_us = 0;
};

struct Profile {
  std::vector<ProfileEvent> events;  // in order of their ends

  // Sums over the events of a category by name, the greatest first.
  std::vector<ProfileTotal> Totals(std::string_view category) const;
  // `process` numbers the ranks of a run, so that their traces can be laid side by side.
  Status WriteChromeTrace(const std::string& path, int process = 0) const;
};

// One records what the threads do whose execution context names it (core/execution_context.h); the
// process's, all others.
class Profiler {
 public:
  Profiler();
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // Throws Error when it is under way.
  void Start();
  // What was recorded since; waits for devices. Throws Error when it is not under way.
  Profile Stop();

  static Profiler& OfProcess();

 private:
  friend class ProfileSpan;
  struct Recorder;
  struct OpenSpan;
  const std::unique_ptr<Recorder> recorder_;
};

inline void StartProfiler() { Profiler::OfProcess().Start(); }
inline Profile StopProfiler() { return Profiler::OfProcess().Stop(); }

namespace internal {
inline std::atomic<int> profilers_under_way{0};
}

class ProfileSpan {
 public:
  // `name` and `category` outlive the span. With a device the span is the device's own.
  ProfileSpan(std::string_view category, std::string_view name) {
    if (MayRecord()) Begin(category, name, nullptr);
  }
  ProfileSpan(std::string_view category, std::string_view name, const Device& device) {
    if (MayRecord()) Begin(category, name, &device);
  }
  ~ProfileSpan() {
    if (open_ != nullptr) End();
  }
  ProfileSpan(const ProfileSpan&) = delete;
  ProfileSpan& operator=(const ProfileSpan&) = delete;

  bool records() const { return open_ != nullptr; }
  // What the scope has to do. With records() only.
  void Note(KernelWork work);

 private:
#if defined(TESSERA_NO_PROFILER)  // libraries for other programs, which cannot start one
  static constexpr bool MayRecord() { return false; }
#else
  static bool MayRecord() {
    return internal::profilers_under_way.load(std::memory_order_relaxed) > 0;
  }
#endif
  void Begin(std::string_view category, std::string_view name, const Device* device);
  void End();

  Profiler::OpenSpan* open_ = nullptr;  // nullptr: nobody records this
};

// How a device tells when its own work began and ended. A mark is a point in the stream of work
// that this thread gives to the device.
struct DeviceTimeline {
  void* (*mark)(const Device& device) = nullptr;
  // Waits until the device has passed both.
  double (*microseconds_between)(void* from, void* to) = nullptr;
  void (*release)(void* mark) = nullptr;
};
void RegisterDeviceTimeline(DeviceType type, const DeviceTimeline& timeline);

}  // namespace tessera

#endif  // TESSERA_CORE_PROFILER_H_
