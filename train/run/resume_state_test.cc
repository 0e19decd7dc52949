// SPDX-License-Identifier: Apache-2.0
#include "train/run/resume_state.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

// What a checkpoint with this state gives back.
StatusOr<ResumeState> SavedAndRead(const nlohmann::json& state) {
  const std::string folder = testing::TempDir() + "/resume_state";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string path = dist::CheckpointPath(folder, 4);
  const dist::CheckpointTensor tensor = {"w", Full({2}, 1.0), Placement::Whole({2})};
  const std::shared_ptr<Communicator> world = SingleProcessCommunicator();
  EXPECT_TRUE(dist::SaveCheckpoint(path, 4, {tensor}, state, *world).ok());
  const auto checkpoint = dist::Checkpoint::Open(path);
  EXPECT_TRUE(checkpoint.ok()) << Message(checkpoint.status());
  return ResumeState::Of(*checkpoint);
}

TEST(ResumeStateTest, IsWhatTheCheckpointKept) {
  const ResumeState state = {.loss_sum = 0.1 + 0.2,
                             .loss_steps = 3,
                             .data_samples = 40,
                             .global_batch = 8,
                             .config = nlohmann::json{{"lr", 0.001}}};
  const auto back = SavedAndRead(state.ToJson());
  ASSERT_TRUE(back.ok()) << Message(back.status());
  EXPECT_EQ(back->ToJson(), state.ToJson());
  EXPECT_EQ(back->loss_sum, state.loss_sum);
  const auto missing = SavedAndRead({{"loss_sum", 1.0}});
  EXPECT_NE(Message(missing.status()).find("checkpoint-4: the trainer's state is missing"),
            std::string::npos);
}

TEST(ResumeStateTest, ChangesThatMatterAreNamed) {
  const ResumeState saved = {
      .data_samples = 40,
      .global_batch = 8,
      .config = nlohmann::json{{"lr", 0.001}, {"seed", 1}, {"log_interval", 10}}};
  ResumeState now = saved;
  EXPECT_TRUE(saved.CheckData(now, "there").ok());
  EXPECT_TRUE(saved.ChangesTo(now).empty());
  now.config = nlohmann::json{{"lr", 0.001}, {"seed", 2}, {"log_interval", 5}};
  now.global_batch = 16;
  now.data_samples = 41;
  EXPECT_EQ(saved.ChangesTo(now),
            (std::vector<std::string>{"seed is now 2; the checkpoint's run had 1",
                                      "a step now takes 16 samples; the checkpoint's run took 8"}));
  EXPECT_EQ(Message(saved.CheckData(now, "there")),
            "there: the run was trained on 40 samples; this data has 41");
}

}  // namespace
}  // namespace tessera::train
