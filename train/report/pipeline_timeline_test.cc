// SPDX-License-Identifier: Apache-2.0
#include "train/report/pipeline_timeline.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using dist::ActionKind;
using dist::TimedAction;

// Stage 0 transfers, stage 1 splits its backward pass and has an action more.
std::vector<TimedAction> ActionsOf(int stage) {
  if (stage == 0) {
    return {{{ActionKind::kForward, 0, 0}, 0.001, 0.0025},
            {{ActionKind::kSendActivation, 0, 0}, 0.0025, 0.003},
            {{ActionKind::kReceiveGradient, 0, 0}, 0.003, 0.009},
            {{ActionKind::kBackward, 0, 0}, 0.009, 0.0101234567}};
  }
  return {{{ActionKind::kForward, 0, 1}, 0.003, 0.004},
          {{ActionKind::kInputGradient, 0, 1}, 0.004, 0.005},
          {{ActionKind::kWeightGradient, 0, 1}, 0.005, 0.006}};
}

TEST(PipelineTimelineTest, HoldsWhatEveryStageComputed) {
  const std::string folder = testing::TempDir() + "/timeline";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.pp = 2});
    const Status written = WritePipelineTimeline(folder, 7, ActionsOf(mesh.pp()->rank()), mesh);
    EXPECT_TRUE(written.ok()) << Message(written);
  });
  const auto text = ReadFile(folder + "/pipeline.json");
  ASSERT_TRUE(text.ok()) << Message(text.status());
  EXPECT_EQ(nlohmann::json::parse(*text), nlohmann::json::parse(R"({"step": 7, "stages": [
    {"stage": 0, "actions": [
      {"kind": "forward", "chunk": 0, "micro_batch": 0, "begin_ms": 1.0, "end_ms": 2.5},
      {"kind": "backward", "chunk": 0, "micro_batch": 0, "begin_ms": 9.0, "end_ms": 10.123}]},
    {"stage": 1, "actions": [
      {"kind": "forward", "chunk": 1, "micro_batch": 0, "begin_ms": 3.0, "end_ms": 4.0},
      {"kind": "input_gradient", "chunk": 1, "micro_batch": 0, "begin_ms": 4.0, "end_ms": 5.0},
      {"kind": "weight_gradient", "chunk": 1, "micro_batch": 0, "begin_ms": 5.0, "end_ms": 6.0}]}
  ]})"));
  ASSERT_TRUE(RemovePipelineTimeline(folder).ok());
  EXPECT_FALSE(PathExists(folder + "/pipeline.json"));
}

}  // namespace
}  // namespace tessera::train
