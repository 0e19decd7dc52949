// SPDX-License-Identifier: Apache-2.0
#include "train/run/run_lock.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace tessera::train {
namespace {

TEST(RunLockTest, IsHeldWhileARunHoldsIt) {
  const std::string folder = testing::TempDir() + "/run_lock";
  ASSERT_TRUE(RemoveAll(folder).ok());
  EXPECT_FALSE(RunLock::IsHeld(folder));  // nothing is there
  {
    std::optional<RunLock> lock;
    ASSERT_TRUE(RunLock::Take(folder, &lock).ok());
    EXPECT_TRUE(RunLock::IsHeld(folder));
  }
  EXPECT_TRUE(PathExists(folder + "/run.lock"));
  EXPECT_FALSE(RunLock::IsHeld(folder));
  ASSERT_TRUE(WriteFileAtomically(folder + "/run.lock", "no process\n").ok());
  EXPECT_FALSE(RunLock::IsHeld(folder));
}

}  // namespace
}  // namespace tessera::train
