// SPDX-License-Identifier: Apache-2.0
#include "dist/store/zero_options.h"

#include <gtest/gtest.h>

namespace tessera::dist {
namespace {

TEST(ZeroOptionsTest, KnowsFsdpsNames) {
  EXPECT_EQ(*ParseShardingStrategy("FULL_SHARD"), 3);
  EXPECT_EQ(*ParseShardingStrategy("shard_grad_op"), 2);
  EXPECT_EQ(*ParseShardingStrategy("no_shard"), 0);
  EXPECT_FALSE(ParseShardingStrategy("hybrid_shard").ok());
  EXPECT_EQ(*ParseBackwardPrefetch("BACKWARD_PRE"), BackwardPrefetch::kPre);
  EXPECT_EQ(*ParseBackwardPrefetch("backward_post"), BackwardPrefetch::kPost);
  EXPECT_FALSE(ParseBackwardPrefetch("before").ok());
}

TEST(ZeroOptionsTest, RefusesWhatDoesNotFitTogetherByName) {
  const auto problem = [](const ZeroOptions& options) { return Message(options.Validate()); };
  EXPECT_EQ(problem({.stage = 3}), "");
  EXPECT_NE(problem({.stage = 4}).find("stage 4"), std::string::npos);
  EXPECT_NE(problem({.stage = 0, .offload_optimizer = true}).find("stage 1"), std::string::npos);
  EXPECT_NE(problem({.stage = 2, .offload_optimizer = true, .offload_parameters = true})
                .find("needs stage 3"),
            std::string::npos);
  EXPECT_NE(problem({.stage = 3, .offload_parameters = true}).find("off-loaded too"),
            std::string::npos);
  EXPECT_NE(problem({.stage = 1, .deterministic = true, .communication_dtype = DType::kBFloat16})
                .find("communication_dtype"),
            std::string::npos);
  EXPECT_NE(problem({.stage = 2, .static_graph = true}).find("static_graph"), std::string::npos);
  EXPECT_NE(problem({.stage = 1, .offload_fraction = 1.5}).find("offload_fraction"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::dist
