// SPDX-License-Identifier: Apache-2.0
// Arguments of Hugging Face's Trainer that depend on each other, and Megatron-LM's schedules.
#include "train/foreign/run_keys.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"
#include "train/foreign/resolve_run.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

TEST(RunKeysTest, ArgumentsOfTheTrainer) {
  struct Case {
    Json arguments;
    Json expected;
  };
  const Case cases[] = {
      {{{"optim", "lion_32bit"}}, {{"optimizer", "lion"}, {"betas", {0.9, 0.999}}}},
      {{{"adam_beta1", 0.8}}, {{"betas", {0.8, 0.999}}}},
      {{{"lr_scheduler_type", "cosine"}, {"lr_scheduler_kwargs", Json::object()}},
       {{"lr_schedule", "cosine"}, {"lr_cycles", nullptr}}},
      {{{"fsdp", {"full_shard", "auto_wrap"}}, {"fsdp_min_num_params", 20000}},
       {{"zero", 3}, {"auto_wrap_min_params", 20000}}},
      {{{"fsdp", "full_shard"}, {"fsdp_min_num_params", 0}},
       {{"zero", 3}, {"auto_wrap_min_params", 0}}},
      {{{"fsdp", "full_shard"}, {"fsdp_transformer_layer_cls_to_wrap", "GPT2Block"}},
       {{"zero", 3}, {"auto_wrap_classes", "TransformerBlock"}}},
      {{{"fsdp", "shard_grad_op"},
        {"fsdp_min_num_params", 20000},
        {"fsdp_transformer_layer_cls_to_wrap", "GPT2Block"}},
       {{"zero", 2}, {"auto_wrap_min_params", 0}, {"auto_wrap_classes", nullptr}}},
      {{{"fsdp", "no_shard offload"}, {"fsdp_config", {{"offload_params", true}}}},
       {{"zero", 0}, {"cpu_offload", false}}},
      // FSDP2 says whether or how: a switch, in whatever spelling, or FSDP1's name.
      {{{"fsdp", true}, {"fsdp_config", {{"version", 2}, {"reshard_after_forward", "False"}}}},
       {{"zero", 3}, {"reshard_after_forward", false}}},
      {{{"fsdp", true},
        {"fsdp_config", {{"version", 2}, {"reshard_after_forward", "SHARD_GRAD_OP"}}}},
       {{"zero", 2}}},
      {{{"warmup_ratio", 0.25}, {"warmup_steps", 0}}, {{"warmup_steps", 0.25}}},
  };
  for (const Case& c : cases) {
    Json flags = {{"output_dir", "o"}};
    flags.update(c.arguments);
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = flags});
    ASSERT_TRUE(run.ok() && run->status().ok())
        << c.arguments << ": " << Message(run.ok() ? run->status() : run.status());
    for (const auto& [key, value] : c.expected.items()) {
      EXPECT_EQ(run->config.Get(key), value) << c.arguments << ' ' << key;
    }
  }
}

TEST(RunKeysTest, WhereARunBegins) {
  const std::pair<Json, std::optional<std::string>> cases[] = {
      {Json(false), std::nullopt}, {Json(true), ""}, {Json("True"), ""}, {Json("o/c-5"), "o/c-5"}};
  for (const auto& [given, expected] : cases) {
    const StatusOr<ResolvedRun> run =
        ResolveRun({.flags = {{"output_dir", "o"}, {"resume_from_checkpoint", given}}});
    ASSERT_TRUE(run.ok() && run->status().ok()) << given;
    EXPECT_EQ(run->resume, expected) << given;
  }
}

TEST(RunKeysTest, WhatIsRefused) {
  struct Case {
    Json arguments;
    const char* says;
  };
  const Case cases[] = {
      {{{"betas", {0.9, 0.95}}, {"adam_beta1", 0.8}}, "adam_beta1 and 'betas' are one key"},
      {{{"betas", {0.9, 0.95}}, {"adam_beta2", 0.8}}, "adam_beta2 and 'betas' are one key"},
      {{{"optim", "adamw_bnb_8bit"}}, "'adamw_bnb_8bit', which is not here; use adamw_torch"},
      {{{"lr_scheduler_type", "cosine_with_min_lr"}}, "must have min_lr or min_lr_rate"},
      {{{"lr_scheduler_type", "warmup_stable_decay"},
        {"lr_scheduler_kwargs", {{"decay_type", "linear"}}}},
       "must have num_decay_steps"},
      {{{"fsdp", "full_shard sharded"}}, "has 'sharded'; it may have full_shard"},
      {{{"fsdp", "hybrid_shard"}}, "shards are not replicated over groups of ranks"},
      {{{"fsdp", "full_shard"}, {"fsdp_transformer_layer_cls_to_wrap", "NoSuchBlock"}},
       "NoSuchBlock"},
      {{{"fsdp", "full_shard"}, {"fsdp_config", {{"backward_prefetch", "sideways"}}}},
       "is \"sideways\", expected one of BACKWARD_PRE, BACKWARD_POST"},
  };
  for (const Case& c : cases) {
    Json flags = {{"output_dir", "o"}};
    flags.update(c.arguments);
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = flags});
    const std::string message = Message(run.ok() ? run->status() : run.status());
    EXPECT_NE(message.find(c.says), std::string::npos) << c.arguments << ": " << message;
  }
}

TEST(RunKeysTest, MegatronsSchedules) {
  const std::pair<Json, Json> cases[] = {
      {{{"lr_decay_style", "inverse-square-root"}}, {{"lr_schedule", "inverse_sqrt"}}},
      {{{"lr_decay_style", "cosine"}}, {{"lr_schedule", "cosine"}}},
      {{{"lr_decay_style", "WSD"}, {"lr_wsd_decay_iters", 4}, {"lr_wsd_decay_style", "linear"}},
       {{"lr_schedule", "warmup_stable_decay"},
        {"lr_decay_steps", 4},
        {"lr_decay_type", "linear"}}},
  };
  for (const auto& [arguments, expected] : cases) {
    Json flags = {{"micro_batch_size", 4}, {"train_iters", 10}, {"lr", 1e-4}, {"save", "o"}};
    flags.update(arguments);
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = flags});
    ASSERT_TRUE(run.ok() && run->status().ok())
        << arguments << ": " << Message(run.ok() ? run->status() : run.status());
    EXPECT_EQ(run->config.Get("schedule_offset"), -1);
    for (const auto& [key, value] : expected.items()) {
      EXPECT_EQ(run->config.Get(key), value) << arguments << ' ' << key;
    }
  }
}

TEST(RunKeysTest, TruthInEverySpelling) {
  for (const Json& value : {Json(true), Json(1), Json("true"), Json("True")}) {
    EXPECT_TRUE(IsTrue(value)) << value;
  }
  for (const Json& value : {Json(false), Json(0), Json("false"), Json(2), Json("2")}) {
    EXPECT_FALSE(IsTrue(value)) << value;
  }
}

}  // namespace
}  // namespace tessera::train
