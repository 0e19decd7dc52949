// SPDX-License-Identifier: Apache-2.0
#include "train/report/step_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text_builder.h"
#include "core/tensor.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"

namespace tessera::train {
namespace {

// A kernel of two steps, of `us` microseconds.
ProfileEvent Kernel(const std::string& name, double us, KernelWork work) {
  ProfileEvent event = {.name = name, .category = "kernel", .duration_us = us};
  event.work = std::move(work);
  return event;
}

// A machine of 1 GFLOP/s and 1 GB/s.
StepLimits Limits() {
  return {.measured = "a machine",
          .peak = "the FMA peak",
          .flops = 1e9,
          .least_seconds = [](const KernelWork& work) {
            return std::max(work.flops, work.bytes) / 1e9;
          }};
}

TEST(StepSummaryTest, RowsStandInTheOrderOfWhatTheyCouldGain) {
  Profile profile;
  for (int step = 0; step < 2; ++step) {
    profile.events.push_back(Kernel("matmul", 5000, {.flops = 4e6, .detail = "2x3x4 float32"}));
    profile.events.push_back(Kernel("norm", 3000, {.bytes = 1e6}));
    profile.events.push_back(Kernel("norm", 1000, {.bytes = 1e6}));
    profile.events.push_back(Kernel("loss scale", 500, {}));
    profile.events.push_back({.name = "a node", .category = "backward", .duration_us = 9000});
  }
  const std::vector<std::string> lines = StepSummary(profile, 2, 0.020, Limits());
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0], "where the time of a step goes (2 steps; a machine):");
  EXPECT_EQ(lines[2],
            "   40.0 %      4.000 ms      2.000 ms     2.0         0.5 GB/s   50.0 %  norm");
  EXPECT_EQ(lines[3],
            "   50.0 %      5.000 ms      1.000 ms     1.0      0.8 GFLOP/s   80.0 %  "
            "matmul 2x3x4 float32");
  EXPECT_EQ(lines[4],
            "    5.0 %      0.500 ms      0.500 ms     1.0                         -  loss scale");
  EXPECT_EQ(lines[5],
            "    5.0 %      0.500 ms      0.500 ms     0.0                         -  outside of "
            "kernels");
  EXPECT_EQ(lines[6], "step 10.0 ms, 40.0 % of the FMA peak");
}

TEST(StepSummaryTest, APhaseIsTheTimeThatNoKernelOfItsThreadTakes) {
  Profile profile;
  ProfileEvent kernel = Kernel("norm", 3000, {.bytes = 3e6});
  kernel.begin_us = 1000;
  ProfileEvent other = Kernel("norm", 500, {.bytes = 5e5});
  other.begin_us = 1500;
  other.thread = 1;
  profile.events = {
      kernel,
      other,
      {.name = "data", .category = "phase", .begin_us = 0, .duration_us = 1000},
      {.name = "forward", .category = "phase", .begin_us = 1000, .duration_us = 5000}};
  const std::vector<std::string> lines = StepSummary(profile, 1, 0.010, Limits());
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_THAT(lines[3], testing::EndsWith("outside of kernels: data"));
  EXPECT_THAT(lines[3], testing::HasSubstr(" 1.000 ms"));
  EXPECT_THAT(lines[4], testing::EndsWith("outside of kernels: forward"));
  EXPECT_THAT(lines[4], testing::HasSubstr(" 2.000 ms"));
  EXPECT_THAT(lines[5], testing::HasSubstr(" 3.500 ms"));  // of 10, but for all of these
}

TEST(StepSummaryTest, AnEvaluationIsNoPartOfAStep) {
  Profile profile;
  ProfileEvent kernel = Kernel("norm", 3000, {.bytes = 1e6});
  ProfileEvent within = Kernel("norm", 4000, {.bytes = 4e6});
  within.begin_us = 5000;
  profile.events = {
      kernel,
      within,
      {.name = "data", .category = "phase", .begin_us = 5000, .duration_us = 500},
      {.name = "evaluation", .category = "evaluation", .begin_us = 5000, .duration_us = 6000}};
  const std::vector<std::string> lines = StepSummary(profile, 1, 0.010, Limits());
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[2],
            "   75.0 %      3.000 ms      2.000 ms     1.0         0.3 GB/s   33.3 %  norm");
  EXPECT_THAT(lines[3], testing::HasSubstr(" 1.000 ms"));
  EXPECT_THAT(lines[4], testing::StartsWith("step 4.0 ms, "));
}

TEST(StepSummaryTest, WhatIsLeftOfManyKindsIsOneRow) {
  Profile profile;
  for (int i = 0; i < 40; ++i) {
    profile.events.push_back(Kernel(Concat("kernel ", i), 100, {.bytes = 1e3}));
  }
  const std::vector<std::string> lines = StepSummary(profile, 1, 0.004, Limits());
  ASSERT_EQ(lines.size(), 2u + 20 + 1 + 1 + 1);
  EXPECT_NE(lines[22].find("20 other kinds"), std::string::npos) << lines[22];
}

// FLOPs and bytes are those of the formula, also where an operand repeats.
TEST(StepSummaryTest, KernelsSayWhatTheyHaveToDo) {
  const Tensor a = Full({2, 3, 5}, 1.0);
  const Tensor b = Full({5, 7}, 1.0);
  StartProfiler();
  const Tensor c = Matmul(a, b);
  const Tensor d = c + Full({7}, 1.0);
  const Profile profile = StopProfiler();
  double flops = 0;
  double added = 0;
  for (const ProfileEvent& event : profile.events) {
    flops += event.work.flops;
    if (event.work.detail == "Add") added += event.work.bytes;
  }
  EXPECT_EQ(flops, 2.0 * 2 * 3 * 5 * 7);
  EXPECT_EQ(added, 4.0 * (42 + 7 + 42));
}

TEST(StepSummaryTest, TheProcessorsLimitsAreMeasured) {
  const StepLimits limits = MeasureLimits(Device{});
  EXPECT_GT(limits.flops, 0);
  EXPECT_EQ(limits.peak, "the FMA peak");
  EXPECT_NEAR(limits.least_seconds({.flops = limits.flops}), 1, 1e-9);
  EXPECT_NE(limits.measured.find("GFLOP/s of FMA (float32)"), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
