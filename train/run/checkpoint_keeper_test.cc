// SPDX-License-Identifier: Apache-2.0
#include "train/run/checkpoint_keeper.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

class CheckpointKeeperTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/checkpoint_keeper";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  static CheckpointKeeper::Appeared Save(CheckpointKeeper& keeper, int64_t step) {
    const Tensor value = Full({3}, static_cast<double>(step));
    return keeper.Save(step, {{"w", value, Placement::Whole({3})}}, {{"step", step}});
  }
  std::string PathOf(int64_t step) const { return dist::CheckpointPath(folder_, step); }

  std::string folder_;
};

TEST_P(CheckpointKeeperTest, SaysWhatAppearsAndKeepsTheNewest) {
  const bool async = GetParam();
  CheckpointKeeper keeper({.folder = folder_, .keep = 2, .async = async}, {});
  EXPECT_TRUE(keeper.empty());
  EXPECT_EQ(keeper.saved_step(), -1);
  for (const int64_t step : {1, 2, 3}) {
    const auto appeared = Save(keeper, step);
    ASSERT_TRUE(appeared.ok()) << Message(appeared.status());
    EXPECT_EQ(keeper.saved_step(), step);
    EXPECT_EQ(keeper.pending(), async);
    if (!async) {
      EXPECT_EQ(*appeared, PathOf(step));
    } else if (step == 1) {
      EXPECT_EQ(*appeared, std::nullopt);
    } else {
      EXPECT_EQ(*appeared, PathOf(step - 1));
    }
  }
  const auto last = keeper.Finish();
  EXPECT_EQ(*last, async ? std::optional(PathOf(3)) : std::nullopt);
  EXPECT_FALSE(keeper.pending());
  EXPECT_EQ(*keeper.Finish(), std::nullopt);
  EXPECT_EQ(dist::ListCheckpoints(folder_), (std::vector<int64_t>{1, 2, 3}));
  ASSERT_TRUE(keeper.Prune().ok());
  EXPECT_EQ(dist::ListCheckpoints(folder_), (std::vector<int64_t>{2, 3}));
  // Without a new one there is nothing to remove.
  std::filesystem::copy(PathOf(2), PathOf(1), std::filesystem::copy_options::recursive);
  ASSERT_TRUE(keeper.Prune().ok());
  EXPECT_EQ(dist::ListCheckpoints(folder_), (std::vector<int64_t>{1, 2, 3}));
}

TEST_P(CheckpointKeeperTest, FindsTheNewestThatIsWhole) {
  const RunLog silent(nullptr, LogLevel::kError);
  CheckpointKeeper keeper({.folder = folder_, .keep = 5, .async = GetParam()}, {});
  EXPECT_FALSE(keeper.FindNewest(silent)->has_value());
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(Save(keeper, step).ok());
  ASSERT_TRUE(keeper.Finish().ok());
  std::filesystem::resize_file(PathOf(3) + "/tensors-00000-of-00001.safetensors", 5);
  CheckpointKeeper next({.folder = folder_, .keep = 5}, {});
  const auto newest = *next.FindNewest(silent);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step(), 2);
  next.ContinueFrom(newest->step());
  EXPECT_EQ(next.saved_step(), 2);
  ASSERT_TRUE(next.RemoveAfter(2).ok());
  EXPECT_EQ(dist::ListCheckpoints(folder_), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(next.Open(PathOf(3), silent).ok());
  EXPECT_EQ(next.Open(PathOf(1), silent)->step(), 1);
  // A run's folder stands for its newest.
  EXPECT_EQ(next.Open(folder_, silent)->step(), 2);
}

INSTANTIATE_TEST_SUITE_P(AtOnceAndBeside, CheckpointKeeperTest, testing::Bool());

}  // namespace
}  // namespace tessera::train
