// SPDX-License-Identifier: Apache-2.0
// Ordinary configuration files of other systems train as the same run does in our own keys, to the
// last bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "train/foreign/resolve_run.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

class ConfigurationFilesTest : public SmallRuns {
 protected:
  // Losses, rates and norms of every step, and the configuration, which also says what changes no
  // number.
  std::vector<Json> Trained(RunSources sources, const std::string& out) {
    Json flags = {{"model", "gpt-tiny"},
                  {"data", root_ + "/text.txt"},
                  {"out", root_ + "/" + out},
                  {"seq_len", 16},
                  {"config_overrides", "n_layer=2,n_embd=32,n_head=2"},
                  {"max_steps", 4},
                  {"threads", 1},
                  {"log_interval", 1},
                  {"val_fraction", 0},
                  {"save_strategy", "no"},
                  {"overwrite", true}};
    for (const auto& [key, value] : sources.flags->items()) flags[key] = value;
    sources.flags = flags;
    const auto run = ResolveRun(sources);
    EXPECT_TRUE(run.ok() && run->status().ok())
        << out << ": " << Message(run.ok() ? run->status() : run.status());
    if (!run.ok() || !run->status().ok()) return {};
    auto setup = PrepareRun(run->config);
    EXPECT_TRUE(setup.ok()) << out << ": " << Message(setup.status());
    if (!setup.ok()) return {};
    Trainer trainer(setup->config, *setup->model, setup->data);
    const auto done = trainer.Train({.output = nullptr});
    EXPECT_TRUE(done.ok()) << out << ": " << Message(done.status());
    const std::vector<Json> rows = Losses(run->config);
    EXPECT_EQ(rows.size(), 4u) << out;
    Json config = Json::parse(run->config.ToJson().dump());
    config.erase("out");
    std::vector<Json> numbers = {config};
    for (const Json& row : rows) {
      numbers.push_back({row.at("loss"), row.at("lr"), row.at("grad_norm")});
    }
    return numbers;
  }

  // `theirs` beside the same run in our own keys, `given` by flags in both.
  void ExpectSame(const std::string& name, RunSources theirs, const Json& ours,
                  const Json& given = Json::object()) {
    for (const auto& [key, value] : given.items()) theirs.flags[key] = value;
    RunSources own = {.flags = ours};
    for (const auto& [key, value] : given.items()) own.flags[key] = value;
    const std::vector<Json> there = Trained(theirs, "theirs"), here = Trained(own, "ours");
    ASSERT_FALSE(there.empty() || here.empty()) << name;
    EXPECT_EQ(there[0], here[0]) << name << ": " << Json::diff(here[0], there[0]);
    EXPECT_EQ(there, here) << name;
  }
};

// Of a key given twice neither value is the one that was meant.
TEST_F(ConfigurationFilesTest, AKeyGivenTwiceIsRefused) {
  const std::string path = root_ + "/twice.json";
  const auto refusal = [&](const std::string& text, const RunSources& sources) {
    std::ofstream(path) << text;
    const auto run = ResolveRun(sources);
    return Message(run.ok() ? run->status() : run.status());
  };
  const auto says = [&](const std::string& key) {
    return path + ": '" + key + "' is given twice, at line ";
  };
  const auto refused = [&](const std::string& text, const RunSources& sources) {
    const std::string message = refusal(text, sources);
    return message.substr(0, message.find("line ") + 5);
  };
  EXPECT_EQ(refused(R"({"lr": 1e-3, "lr": 1e-4})", {.config = path}), says("lr"));
  EXPECT_EQ(refused("{\"lr\": 1, // again\n \"lr\": 1}", {.config = path}), says("lr"));
  EXPECT_EQ(
      refused(R"({"deepspeed": {"fp16": {"enabled": true, "enabled": false}}})", {.config = path}),
      says("deepspeed.fp16.enabled"));
  EXPECT_EQ(refused(R"({"zero_optimization": {"stage": 2, "stage": 3}})",
                    {.flags = {{"deepspeed", path}}}),
            says("zero_optimization.stage"));
  EXPECT_EQ(
      refused(R"({"min_num_params": 1, "min_num_params": 2})", {.flags = {{"fsdp_config", path}}}),
      says("min_num_params"));
}

TEST_F(ConfigurationFilesTest, DeepSpeed) {
  // What DeepSpeed does where its file says nothing.
  const Json plain = {{"lr_schedule", "constant"}, {"max_grad_norm", 0}};
  const auto with = [](Json keys, const Json& more) {
    keys.update(more);
    return keys;
  };
  // Buckets have elements there.
  const auto megabytes = [](double elements) { return elements * 4 / 1048576; };
  const Json auto_clipping = {{"lr_schedule", "constant"}};
  const Json warmup = {
      {"lr_schedule", "constant"}, {"warmup_type", "log"}, {"schedule_offset", -2}};
  struct File {
    const char* name;
    Json ours;
    Json given;        // flags of both
    Json theirs = {};  // beside their file
  };
  const std::vector<File> files = {
      {"hf_zero2",
       with(warmup, {{"zero", 2}, {"cpu_offload", true}, {"bucket_cap_mb", megabytes(2e8)}}),
       {{"warmup_steps", 3}, {"learning_rate", 2e-3}}},
      {"hf_zero3",
       with(warmup, {{"zero", 3},
                     {"cpu_offload", true},
                     {"offload_parameters", true},
                     {"lr_schedule", "linear"},
                     {"min_lr", 0}}),
       {{"warmup_steps", 2}}},
      {"llama_factory_z0",
       with(auto_clipping, {{"zero", 0}, {"bucket_cap_mb", megabytes(5e8)}, {"dtype", "bfloat16"}}),
       {},
       {{"bf16", true}}},  // its own is "auto"
      {"llama_factory_z2",
       with(auto_clipping,
            {{"zero", 2}, {"overlap_comm", false}, {"bucket_cap_mb", megabytes(5e8)}}),
       {{"per_device_train_batch_size", 2}, {"gradient_accumulation_steps", 2}}},
      {"llama_factory_z3",
       with(auto_clipping, {{"zero", 3}, {"overlap_comm", false}}),
       {{"max_grad_norm", 0.1}}},
      {"llama_factory_z3_offload",
       with(auto_clipping, {{"zero", 3}, {"cpu_offload", true}, {"offload_parameters", true}}),
       {}},
      {"cifar",
       with(warmup, {{"batch_size", 16},
                     {"optimizer", "adamw"},
                     {"lr", 1e-3},
                     {"betas", {0.8, 0.999}},
                     {"weight_decay", 3e-7},
                     {"warmup_steps", 1000},
                     {"bucket_cap_mb", megabytes(5e7)},
                     {"zero", 1}}),
       {}},
      {"hello",
       with(plain, {{"batch_size", 4},
                    {"lr", 1e-4},
                    {"betas", {0.9, 0.999}},
                    {"weight_decay", 0},
                    {"dtype", "float16"},
                    {"zero", 1},
                    {"cpu_offload", true}}),
       {}},
      {"megatron_gpt2",
       with(plain, {{"batch_size", 4},
                    {"gradient_accumulation_steps", 2},
                    {"max_grad_norm", 1},
                    {"dtype", "float16"},
                    {"zero", 2},
                    {"bucket_cap_mb", megabytes(5e7)},
                    {"wall_clock_breakdown", true},
                    {"partition_activations", true},
                    {"checkpoint_activations", true}}),
       {}},
      {"bing_bert",
       with(plain, {{"batch_size", 4},
                    {"gradient_accumulation_steps", 2},
                    {"max_grad_norm", 1},
                    {"dtype", "float16"},
                    {"hysteresis", 1},
                    {"lr", 4e-4},
                    {"betas", {0.9, 0.999}},
                    {"weight_decay", 0.01}}),
       {}},
      {"chatglm_ptuning",
       with(plain, {{"zero", 2}, {"overlap_comm", false}, {"bucket_cap_mb", megabytes(5e8)}}),
       {}},
  };
  for (const File& file : files) {
    const std::string path = Concat("train/foreign/testdata/deepspeed/", file.name, ".json");
    RunSources theirs = {.deepspeed = path};
    if (!file.theirs.is_null()) theirs.flags = file.theirs;
    ExpectSame(file.name, theirs, file.ours, file.given);
  }
}

TEST_F(ConfigurationFilesTest, AFlagWinsOverWhatADeepSpeedFileLeavesOut) {
  const Json given = {{"lr_schedule", "cosine"}, {"max_grad_norm", 0.25}};
  ExpectSame("flags", {.deepspeed = "train/foreign/testdata/deepspeed/chatglm_ptuning.json"},
             {{"zero", 2}, {"overlap_comm", false}, {"bucket_cap_mb", 5e8 * 4 / 1048576}}, given);
}

TEST_F(ConfigurationFilesTest, Accelerate) {
  const std::vector<std::pair<std::string, Json>> files = {
      {"multi_cpu", {}},
      {"multi_gpu", {{"autocast", "bfloat16"}}},
      {"fsdp",
       {{"zero", 3},
        {"autocast", "bfloat16"},
        {"auto_wrap_classes", "TransformerBlock"},
        {"forward_prefetch", false},
        {"cpu_offload", true},
        {"offload_parameters", true}}},
      {"fsdp2",
       {{"zero", 3},
        {"auto_wrap_min_params", 20000},
        {"reshard_after_forward", false},
        {"checkpoint_activations", true}}},
      {"fsdp_no_wrap", {{"zero", 3}}},
      {"deepspeed",
       {{"zero", 2},
        {"dtype", "float16"},
        {"gradient_accumulation_steps", 2},
        {"max_grad_norm", 0.5},
        {"cpu_offload", true}}},
      {"deepspeed_file",
       {{"lr_schedule", "constant"},
        {"max_grad_norm", 0},
        {"batch_size", 4},
        {"lr", 1e-4},
        {"betas", {0.9, 0.999}},
        {"weight_decay", 0},
        {"dtype", "float16"},
        {"zero", 1},
        {"cpu_offload", true}}},
      {"megatron",
       {{"dtype", "bfloat16"},
        {"gradient_accumulation_steps", 2},
        {"checkpoint_activations", true},
        {"zero", 1}}}};
  for (const auto& [name, ours] : files) {
    ExpectSame(name, {.accelerate = Concat("train/foreign/testdata/accelerate/", name, ".yaml")},
               ours);
  }
}

TEST_F(ConfigurationFilesTest, ColossalAi) {
  ExpectSame("gpt2_zero3", {.config = "train/foreign/testdata/colossalai/gpt2_zero3.json"},
             {{"dialect", "colossal-ai"},
              {"zero", 3},
              {"dtype", "float16"},
              {"cpu_offload", true},
              {"offload_parameters", true},
              {"batch_size", 2},
              {"epochs", 60},
              {"optimizer", "adamw"},
              {"lr", 0.00015},
              {"weight_decay", 0.01},
              {"checkpoint_activations", true},
              {"schedule_by_epoch", true},
              {"report_to", {"tensorboard"}},
              {"wall_clock_breakdown", true}});
  ExpectSame("gpt2_zero2", {.config = "train/foreign/testdata/colossalai/gpt2_zero2.json"},
             {{"dialect", "colossal-ai"},
              {"zero", 2},
              {"dtype", "float16"},
              {"initial_scale", 256},
              {"max_grad_norm", 1},
              {"cpu_offload", true},
              {"batch_size", 2},
              {"epochs", 60},
              {"optimizer", "adamw"},
              {"lr", 0.00015},
              {"weight_decay", 0.01},
              {"checkpoint_activations", true}});
}

TEST_F(ConfigurationFilesTest, FsdpArguments) {
  const Json wrapped = {{"zero", 3}, {"auto_wrap_classes", "TransformerBlock"}};
  ExpectSame("full_shard auto_wrap",
             {.flags = {{"fsdp", "full_shard auto_wrap"},
                        {"fsdp_config", {{"transformer_layer_cls_to_wrap", {"GPT2Block"}}}}}},
             wrapped);
  ExpectSame("full_shard auto_wrap offload",
             {.flags = {{"fsdp", "full_shard auto_wrap offload"},
                        {"fsdp_config", {{"fsdp_min_num_params", 20000}, {"xla", false}}}}},
             {{"zero", 3},
              {"auto_wrap_min_params", 20000},
              {"cpu_offload", true},
              {"offload_parameters", true}});
  ExpectSame("shard_grad_op", {.flags = {{"fsdp", "shard_grad_op"}}}, {{"zero", 2}});
  ExpectSame("no_shard", {.flags = {{"fsdp", "no_shard"}}}, {{"zero", 0}});
  ExpectSame("true",
             {.flags = {{"fsdp", true},
                        {"fsdp_config",
                         {{"version", 2},
                          {"backward_prefetch", "backward_post"},
                          {"forward_prefetch", false},
                          {"limit_all_gathers", true},
                          {"activation_checkpointing", true}}}}},
             {{"zero", 3},
              {"backward_prefetch", "backward_post"},
              {"forward_prefetch", false},
              {"checkpoint_activations", true}});
}

// Hugging Face's own rates: linear and cosine warm-up and decay, whose first step is step 0.
TEST_F(ConfigurationFilesTest, HuggingFaceSchedules) {
  const auto rows = Trained(
      {.flags = {{"lr_scheduler_type", "linear"}, {"warmup_ratio", 0.5}, {"learning_rate", 1e-3}}},
      "rates");
  ASSERT_EQ(rows.size(), 5u);
  const double expected[] = {0, 0.5e-3, 1e-3, 0.5e-3};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(rows[i + 1][1].get<double>(), expected[i], 1e-12) << i;
}

}  // namespace
}  // namespace tessera::train
