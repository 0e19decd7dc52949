// SPDX-License-Identifier: Apache-2.0
#include "models/block_keys.h"

#include <gtest/gtest.h>

#include "models/model_keys.h"

namespace tessera::models {
namespace {

constexpr TensorKey kCount{"count", KeyElements::kInt32, "[B]", "of this test"};

TEST(BlockKeysTest, WhatNoBlockBeforeGivesIsRefusedByName) {
  const BlockKeys embed = {.takes = {keys::kInputIds},
                           .may_take = {keys::kPositionIds},
                           .gives = {keys::kHidden},
                           .drops = {keys::kInputIds}};
  const BlockKeys head = {
      .takes = {keys::kHidden}, .may_take = {keys::kTargets}, .gives = {keys::kLoss}};
  const auto inputs = InputsOf({embed, head}, "block");
  ASSERT_TRUE(inputs.ok()) << Message(inputs.status());
  EXPECT_EQ(inputs->Text(), "input_ids, position_ids, targets");
  EXPECT_EQ(Message(InputsOf({embed, {.takes = {keys::kHidden, kCount}}}, "block").status()),
            "block 1 takes 'count', which no block before it gives; there are: hidden");
  EXPECT_NE(Message(InputsOf({embed, {.takes = {keys::kInputIds}}}, "block").status())
                .find("'input_ids'"),
            std::string::npos);  // dropped
}

TEST(BlockKeysTest, BlocksInSequenceAreOne) {
  const BlockKeys all = InSequence({{.takes = {keys::kInputIds}, .gives = {keys::kHidden}},
                                    {.takes = {keys::kHidden, kCount},
                                     .may_take = {keys::kTargets},
                                     .gives = {keys::kLoss},
                                     .drops = {keys::kHidden}}});
  EXPECT_EQ(all.takes.Text(), "input_ids, count");
  EXPECT_EQ(all.may_take.Text(), "targets");
  EXPECT_EQ(all.gives.Text(), "loss");
  EXPECT_EQ(all.drops.Text(), "hidden");
}

TEST(BundleTest, KeysHoldTheirElements) {
  Bundle bundle = {{kCount, Empty({2}, DType::kInt32)}};
  EXPECT_TRUE(bundle.has(kCount));
  EXPECT_THROW(bundle.set(kCount, Empty({2}, DType::kInt64)), Error);
  try {
    (void)bundle.at(keys::kLoss);
    FAIL();
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("'loss'"), std::string::npos) << what;
    EXPECT_NE(what.find("given are: count"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace tessera::models
