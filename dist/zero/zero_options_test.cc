#include "dist/zero/zero_options.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::dist {
namespace {

using nlohmann::json;

std::string ErrorOf(const json& zero) {
  const auto options = ZeroOptionsFromDeepSpeed("ds.json: zero_optimization", zero);
  return options.ok() ? "" : Message(options.status());
}

TEST(ZeroOptionsTest, ReadsWhatDeepSpeedFilesSay) {
  const auto options = ZeroOptionsFromDeepSpeed("ds.json", json::parse(R"({
    "stage": 3, "overlap_comm": false, "contiguous_gradients": true, "reduce_scatter": true,
    "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e8, "stage3_prefetch_bucket_size": 1000000,
    "stage3_max_live_parameters": 1e9, "stage3_param_persistence_threshold": 100000,
    "stage3_gather_16bit_weights_on_model_save": true,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu"}})"));
  ASSERT_TRUE(options.ok()) << Message(options.status());
  EXPECT_EQ(options->stage, 3);
  EXPECT_FALSE(options->overlap);
  EXPECT_NEAR(options->bucket_cap_mb, 2e9 / 1048576, 1e-6);
  EXPECT_EQ(options->prefetch_elements, 1000000);
  EXPECT_FALSE(options->limit_all_gathers);
  EXPECT_EQ(options->max_live_elements, 1000000000);
  EXPECT_EQ(options->persistence_threshold, 100000);
  EXPECT_TRUE(options->offload_optimizer);
  EXPECT_TRUE(options->offload_parameters);
  const auto old = ZeroOptionsFromDeepSpeed("ds.json", {{"stage", 2}, {"cpu_offload", true}});
  ASSERT_TRUE(old.ok());
  EXPECT_TRUE(old->offload_optimizer);
  const auto part = ZeroOptionsFromDeepSpeed(
      "ds.json", {{"stage", 1}, {"offload_optimizer", {{"device", "cpu"}, {"ratio", 0.25}}}});
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->offload_fraction, 0.25);
  const auto none = ZeroOptionsFromDeepSpeed(
      "ds.json", {{"stage", 1}, {"offload_optimizer", {{"device", "none"}}}});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->offload_optimizer);
}

TEST(ZeroOptionsTest, RefusesByName) {
  EXPECT_EQ(ErrorOf({{"stagee", 1}}),
            "ds.json: zero_optimization: unknown key 'stagee'; did you mean 'stage'?");
  struct Wrong {
    json zero;
    const char* named;
  };
  for (const Wrong& wrong :
       {Wrong{{{"stage", 5}}, "stage"},
        {{{"stage", "two"}}, "'stage'"},
        {{{"stage", 1}, {"contiguous_gradients", false}}, "'contiguous_gradients'"},
        {{{"stage", 1}, {"reduce_scatter", false}}, "'reduce_scatter'"},
        {{{"stage", 1}, {"reduce_bucket_size", 10}, {"allgather_bucket_size", 20}},
         "'allgather_bucket_size'"},
        {{{"stage", 3}, {"sub_group_size", 1e9}}, "'sub_group_size'"},
        {{{"stage", 3}, {"stage3_max_reuse_distance", 1e9}}, "'stage3_max_reuse_distance'"},
        {{{"stage", 3}, {"stage3_gather_16bit_weights_on_model_save", false}},
         "'stage3_gather_16bit_weights_on_model_save'"},
        {{{"stage", 3}, {"offload_optimizer", {{"device", "nvme"}}}}, "'offload_optimizer'"},
        {{{"stage", 3}, {"offload_optimizer", {{"nvme_path", "/x"}}}}, "'nvme_path'"},
        {{{"stage", 2}, {"offload_param", {{"device", "cpu"}}}}, "stage 3"},
        {{{"stage", 0}, {"cpu_offload", true}}, "off-loading"},
        {{{"stage", 1}, {"overlap_comm", 1}}, "'overlap_comm'"},
        {{{"stage", 1}, {"reduce_bucket_size", 0.5}}, "'reduce_bucket_size'"},
        {{{"stage", 1}, {"round_robin_gradients", true}}, "'round_robin_gradients'"}}) {
    EXPECT_NE(ErrorOf(wrong.zero).find(wrong.named), std::string::npos)
        << wrong.zero.dump() << ": " << ErrorOf(wrong.zero);
  }
  EXPECT_NE(ErrorOf(json::array()), "");
}

TEST(ZeroOptionsTest, KnowsFsdpsNames) {
  EXPECT_EQ(*ParseShardingStrategy("FULL_SHARD"), 3);
  EXPECT_EQ(*ParseShardingStrategy("shard_grad_op"), 2);
  EXPECT_EQ(*ParseShardingStrategy("no_shard"), 0);
  EXPECT_FALSE(ParseShardingStrategy("hybrid_shard").ok());
  EXPECT_EQ(*ParseBackwardPrefetch("BACKWARD_PRE"), BackwardPrefetch::kPre);
  EXPECT_EQ(*ParseBackwardPrefetch("backward_post"), BackwardPrefetch::kPost);
  EXPECT_FALSE(ParseBackwardPrefetch("before").ok());
}

}  // namespace
}  // namespace tessera::dist
