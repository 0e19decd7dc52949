// SPDX-License-Identifier: Apache-2.0
// Configurations of runs: Tessera's, DeepSpeed's and Accelerate's (train/config/).
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"
#include "train/config/run_config.h"
#include "train/foreign/accelerate_config.h"
#include "train/foreign/deepspeed_config.h"
#include "train/foreign/run_keys.h"

namespace tessera::fuzz {
namespace {

bool Use(const train::RunConfig& config) {
  if (!config.Validate().ok()) return false;
  config.ValidateFor(4).IgnoreError();
  config.ToJson().dump();
  config.Describe();
  config.update_rule().status().IgnoreError();
  config.zero_options().status().IgnoreError();
  return true;
}

bool RunOwn(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("run.json", bytes);
  train::RunConfig config;
  return train::ReadRunConfig(folder.Path("run.json"), &config).ok() && Use(config);
}

std::vector<std::string> OwnSeeds() {
  return {R"({"model": "gpt-tiny", "data": "a.txt", "batch_size": 4, "lr": 1e-3, "max_steps": 10})",
          R"({"optimizer": "sgd", "momentum": 0.9, "zero": 2, "max_grad_norm": 1.0})",
          R"({"optimizer": "lion", "betas": [0.9, 0.99], "tp": 2, "pp": 2})",
          train::RunConfig().ToJson().dump()};
}

// Keys that another system's configuration becomes.
bool UseForeign(const nlohmann::json& keys, const Status& status) {
  train::RunConfig config;
  return status.ok() && train::ApplyRunConfigJson(keys, "file", &config).ok() && Use(config);
}

bool RunDeepSpeed(std::string_view bytes) {
  const auto json = ParseJson(bytes, "ds.json");
  if (!json.ok()) return false;
  const train::Translation done = train::TranslateDeepSpeed(*json, "ds.json", 2);
  return UseForeign(done.keys, train::FirstRefusal(done.verdicts));
}

bool RunAccelerate(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("default_config.yaml", bytes);
  const auto settings = train::ReadAccelerateSettings(folder.Path("default_config.yaml"));
  if (!settings.ok()) return false;
  const train::AccelerateConfig done = train::JudgeAccelerate(*settings, "default_config.yaml");
  return UseForeign(done.keys, train::FirstRefusal(done.verdicts));
}

std::vector<std::string> AccelerateSeeds() {
  return {
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP  # sharded\n"
      "fsdp_config:\n  fsdp_sharding_strategy: 1\n  fsdp_offload_params: false\n"
      "mixed_precision: 'no'\nnum_processes: 2\nuse_cpu: true\n",
      "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, "
      "offload_optimizer_device: cpu, gradient_clipping: 1.0}\n"};
}

std::vector<std::string> DeepSpeedSeeds() {
  return {
      R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,)"
      R"( "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16}})",
      R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},)"
      R"( "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_type": "linear"}},)"
      R"( "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},)"
      R"( "bf16": {"enabled": "auto"}})"};
}

const FuzzTargetRegistration own({.name = "run_config",
                                  .run = RunOwn,
                                  .seeds = OwnSeeds,
                                  .words = {"null", "true", "-1", "1e308", "9223372036854775807",
                                            "optimizer", "schedule", "zero"}});
const FuzzTargetRegistration deepspeed({.name = "deepspeed_config",
                                        .run = RunDeepSpeed,
                                        .seeds = DeepSpeedSeeds,
                                        .words = {"\"auto\"", "zero_optimization", "stage",
                                                  "offload_param", "fp16", "bf16", "scheduler",
                                                  "WarmupDecayLR", "params", "optimizer",
                                                  "OneBitAdam", "wall_clock_breakdown"}});
const FuzzTargetRegistration accelerate({.name = "accelerate_config",
                                         .run = RunAccelerate,
                                         .seeds = AccelerateSeeds,
                                         .words = {"&a", "*a", "<<:", "!!", "|-", "fsdp_config",
                                                   "megatron_lm_config", "parallelism_config",
                                                   "NO_SHARD", "MULTI_GPU"}});

}  // namespace
}  // namespace tessera::fuzz
