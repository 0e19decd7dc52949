// SPDX-License-Identifier: Apache-2.0
#include "core/profiler.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "core/tensor.h"
#include "nlohmann/json.hpp"

namespace tessera {
namespace {

TEST(ProfilerTest, RecordsSpansInWhichOthersLieAndKernelsWithTheMemoryInUse) {
  StartProfiler();
  Tensor t;
  {
    const ProfileSpan outer("phase", "outer");
    t = Full({1024}, 1.0);
    std::thread([] { const ProfileSpan other("phase", "other thread"); }).join();
  }
  const Profile profile = StopProfiler();
  const ProfileSpan unseen("phase", "after the end");

  const auto find = [&](std::string_view name) -> const ProfileEvent& {
    for (const ProfileEvent& event : profile.events) {
      if (event.name == name) return event;
    }
    throw std::runtime_error("no event " + std::string(name));
  };
  const ProfileEvent& outer = find("outer");
  const ProfileEvent& fill = find("fill");
  EXPECT_EQ(fill.category, "kernel");
  EXPECT_GE(fill.memory_bytes, 4096);
  EXPECT_EQ(outer.memory_bytes, -1);
  EXPECT_GE(fill.begin_us, outer.begin_us);
  EXPECT_LE(fill.begin_us + fill.duration_us, outer.begin_us + outer.duration_us);
  EXPECT_NE(find("other thread").thread, outer.thread);
  EXPECT_EQ(profile.events.size(), 3u);
}

TEST(ProfilerTest, TotalsByNameAreSortedAndTheTraceIsJson) {
  Profile profile;
  profile.events = {{"a", "kernel", 0, 0.0, 5.0, 100},
                    {"b \"quoted\"", "kernel", 1, 5.0, 7.5, 200},
                    {"a", "kernel", 0, 20.0, 5.0, 100},
                    {"a", "module", 0, 0.0, 50.0, -1}};
  const std::vector<ProfileTotal> totals = profile.Totals("kernel");
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].name, "a");
  EXPECT_EQ(totals[0].calls, 2);
  EXPECT_DOUBLE_EQ(totals[0].total_us, 10.0);

  const std::string path = testing::TempDir() + "/trace.json";
  ASSERT_TRUE(profile.WriteChromeTrace(path, 3).ok());
  const auto trace = nlohmann::json::parse(*ReadFile(path));
  ASSERT_EQ(trace["traceEvents"].size(), 7u);  // three of them with memory
  const auto& quoted = trace["traceEvents"][2];
  EXPECT_EQ(quoted["name"], "b \"quoted\"");
  EXPECT_EQ(quoted["pid"], 3);
  EXPECT_EQ(quoted["tid"], 1);
  EXPECT_EQ(quoted["dur"], 7.5);
  EXPECT_EQ(trace["traceEvents"][3]["args"]["bytes"], 200);
}

// A device that counts marks instead of time.
struct Mark {
  double at;
};
double device_time = 0;

TEST(ProfilerTest, KernelsOfADeviceHaveTheDevicesTimes) {
  RegisterDeviceTimeline(
      DeviceType::kMeta,
      {.mark = [](const Device&) -> void* { return new Mark{device_time += 10}; },
       .microseconds_between =
           [](void* from, void* to) {
             return static_cast<Mark*>(to)->at - static_cast<Mark*>(from)->at;
           },
       .release = [](void* mark) { delete static_cast<Mark*>(mark); }});
  StartProfiler();
  { const ProfileSpan first("kernel", "first", Device::Meta()); }
  { const ProfileSpan second("kernel", "second", Device::Meta()); }
  const Profile profile = StopProfiler();
  RegisterDeviceTimeline(DeviceType::kMeta, {});
  ASSERT_EQ(profile.events.size(), 2u);
  EXPECT_DOUBLE_EQ(profile.events[0].duration_us, 10);
  EXPECT_DOUBLE_EQ(profile.events[1].begin_us - profile.events[0].begin_us, 20);
}

TEST(ProfilerTest, OneAtATime) {
  EXPECT_THROW(StopProfiler(), Error);
  StartProfiler();
  EXPECT_THROW(StartProfiler(), Error);
  EXPECT_TRUE(StopProfiler().events.empty());
}

}  // namespace
}  // namespace tessera
