// SPDX-License-Identifier: Apache-2.0
#include "core/profiler.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "core/allocator.h"
#include "core/device_graph.h"
#include "core/execution_context.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// A span whose times the device still has to tell.
struct Pending {
  size_t event;
  DeviceTimeline timeline;
  void* origin;
  void* begin;
  void* end;
};

// The mark that was set on a device when it was first met, and the host's time then.
struct Origin {
  DeviceTimeline timeline;
  void* mark = nullptr;
  double at = 0;
};

DeviceTimeline& TimelineOf(DeviceType type) {
  static DeviceTimeline timelines[kNumDeviceTypes];
  return timelines[static_cast<int>(type)];
}

}  // namespace

struct Profiler::Recorder {
  std::mutex mutex;
  std::atomic<bool> under_way{false};
  Clock::time_point start;
  std::map<std::thread::id, int> threads;
  std::vector<ProfileEvent> events;
  std::vector<Pending> pending;
  std::map<std::string, Origin> origins;  // by device

  double Now() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  // Of the calling thread. With the lock held.
  int ThreadNumber() {
    return threads.emplace(std::this_thread::get_id(), static_cast<int>(threads.size()))
        .first->second;
  }
};

struct Profiler::OpenSpan {
  Recorder* recorder;
  std::string_view category;
  std::string_view name;
  std::optional<Device> device = {};  // whose kernel it is
  void* mark = nullptr;
  double begin_us = 0;
  KernelWork work = {};
};

void RegisterDeviceTimeline(DeviceType type, const DeviceTimeline& timeline) {
  TimelineOf(type) = timeline;
}

Profiler::Profiler() : recorder_(std::make_unique<Recorder>()) {}

Profiler::~Profiler() {
  if (recorder_->under_way) Stop();
}

// Never destroyed: threads may end after static objects go.
Profiler& Profiler::OfProcess() {
  static auto* const profiler = new Profiler;
  return *profiler;
}

void Profiler::Start() {
  const std::lock_guard<std::mutex> lock(recorder_->mutex);
  TESSERA_CHECK(!recorder_->under_way, "profiler", "one is under way already");
  recorder_->start = Clock::now();
  recorder_->threads.clear();
  recorder_->events.clear();
  recorder_->under_way = true;
  ++internal::profilers_under_way;
}

Profile Profiler::Stop() {
  Recorder& recorder = *recorder_;
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  TESSERA_CHECK(recorder.under_way, "profiler", "none is under way");
  --internal::profilers_under_way;
  recorder.under_way = false;
  for (const Pending& p : recorder.pending) {
    ProfileEvent& event = recorder.events[p.event];
    event.begin_us += p.timeline.microseconds_between(p.origin, p.begin);
    event.duration_us = p.timeline.microseconds_between(p.begin, p.end);
    p.timeline.release(p.begin);
    p.timeline.release(p.end);
  }
  recorder.pending.clear();
  for (const auto& [device, origin] : recorder.origins) origin.timeline.release(origin.mark);
  recorder.origins.clear();
  Profile profile;
  profile.events = std::move(recorder.events);
  recorder.events.clear();
  return profile;
}

void ProfileSpan::Begin(std::string_view category, std::string_view name, const Device* device) {
  Profiler* const own = ExecutionContext::Current().profiler;
  Profiler::Recorder& recorder = *(own != nullptr ? *own : Profiler::OfProcess()).recorder_;
  if (!recorder.under_way.load(std::memory_order_acquire)) return;
  if (device != nullptr && RecordingGraph()) return;  // it runs when the graph does, unseen
  open_ = new Profiler::OpenSpan{.recorder = &recorder, .category = category, .name = name};
  if (device != nullptr) {
    open_->device = *device;
    const DeviceTimeline& timeline = TimelineOf(device->type);
    if (timeline.mark != nullptr) {
      {
        const std::lock_guard<std::mutex> lock(recorder.mutex);
        Origin& origin = recorder.origins[device->ToString()];
        if (origin.mark == nullptr) origin = {timeline, timeline.mark(*device), recorder.Now()};
      }
      open_->mark = timeline.mark(*device);
    }
  }
  open_->begin_us = recorder.Now();
}

void ProfileSpan::Note(KernelWork work) { open_->work = std::move(work); }

void ProfileSpan::End() {
  const std::unique_ptr<Profiler::OpenSpan> span(open_);
  Profiler::Recorder& recorder = *span->recorder;
  const double end = recorder.Now();
  int64_t memory = -1;
  DeviceTimeline timeline;
  void* end_mark = nullptr;
  if (span->device) {
    timeline = TimelineOf(span->device->type);
    if (span->mark != nullptr) end_mark = timeline.mark(*span->device);
    Allocator* const allocator = Allocator::Find(*span->device);
    if (allocator != nullptr) memory = allocator->stats().current_bytes;
  }
  const std::lock_guard<std::mutex> lock(recorder.mutex);
  if (!recorder.under_way) return;  // it ended while this span was open
  recorder.events.push_back({std::string(span->name), std::string(span->category),
                             recorder.ThreadNumber(), span->begin_us, end - span->begin_us, memory,
                             std::move(span->work)});
  if (span->mark != nullptr) {
    const Origin& origin = recorder.origins.at(span->device->ToString());
    recorder.events.back().begin_us = origin.at;
    recorder.pending.push_back(
        {recorder.events.size() - 1, timeline, origin.mark, span->mark, end_mark});
  }
}

std::vector<ProfileTotal> Profile::Totals(std::string_view category) const {
  std::map<std::string, ProfileTotal> by_name;
  for (const ProfileEvent& event : events) {
    if (event.category != category) continue;
    ProfileTotal& total = by_name[event.name];
    total.name = event.name;
    ++total.calls;
    total.total_us += event.duration_us;
  }
  std::vector<ProfileTotal> totals;
  for (auto& [name, total] : by_name) totals.push_back(std::move(total));
  std::stable_sort(totals.begin(), totals.end(), [](const ProfileTotal& a, const ProfileTotal& b) {
    return a.total_us > b.total_us;
  });
  return totals;
}

Status Profile::WriteChromeTrace(const std::string& path, int process) const {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  const auto add = [&](const nlohmann::ordered_json& event) {
    text += separator + event.dump();
    separator = ",\n";
  };
  for (const ProfileEvent& event : events) {
    add({{"name", event.name},
         {"cat", event.category},
         {"ph", "X"},
         {"ts", event.begin_us},
         {"dur", event.duration_us},
         {"pid", process},
         {"tid", event.thread}});
    if (event.memory_bytes < 0) continue;
    add({{"name", "memory"},
         {"ph", "C"},
         {"ts", event.begin_us + event.duration_us},
         {"pid", process},
         {"args", {{"bytes", event.memory_bytes}}}});
  }
  return WriteFileAtomically(path, text + "\n]}\n");
}

}  // namespace tessera
