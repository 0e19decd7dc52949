// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

TEST(NearestNameTest, IsTheOneWithTheFewestEdits) {
  const std::vector<std::string> known = {"weight_decay", "lr", "lr_schedule", "warmup_steps"};
  EXPECT_EQ(NearestName("weight_decay", known), "weight_decay");
  EXPECT_EQ(NearestName("wieght_decay", known), "weight_decay");
  EXPECT_EQ(NearestName("weight-decay", known), "weight_decay");
  EXPECT_EQ(NearestName("decay", known), "");
  EXPECT_EQ(NearestName("lr_shedule", known), "lr_schedule");
  EXPECT_EQ(NearestName("warmup", known), "");
  EXPECT_EQ(NearestName("warmup_step", known), "warmup_steps");
}

// Two edits of a short name, a third of a long one.
TEST(NearestNameTest, HasALimit) {
  EXPECT_EQ(NearestName("", {"lr"}), "lr");
  EXPECT_EQ(NearestName("", {"tag"}), "");
  EXPECT_EQ(NearestName("xy", {"lr"}), "lr");
  EXPECT_EQ(NearestName("xyz", {"tag"}), "");
  EXPECT_EQ(NearestName("abcdefuvw", {"abcdefghi"}), "abcdefghi");
  EXPECT_EQ(NearestName("abcdeuvwx", {"abcdefghi"}), "");
  EXPECT_EQ(NearestName(std::string(4000, 'a'), {"a", "aaaa"}), "");
}

TEST(NearestNameTest, TakesTheFirstOfEquals) {
  EXPECT_EQ(NearestName("bat", {"cat", "rat"}), "cat");
  EXPECT_EQ(NearestName("bat", {"rats", "cat", "rat"}), "cat");
  EXPECT_EQ(DidYouMean("bat", {"cat"}), "; did you mean 'cat'?");
  EXPECT_EQ(DidYouMean("bat", {}), "");
}

}  // namespace
}  // namespace tessera
