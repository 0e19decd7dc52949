// SPDX-License-Identifier: Apache-2.0
// Every key that another system documents (testdata/make_keys.py lists them; colossalai_files.txt
// is written by hand, of configurations that its packages no longer read) is known here, and its
// fate is what a run shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/options.h"
#include "nlohmann/json.hpp"
#include "train/foreign/resolve_run.h"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

struct DocumentedKey {
  std::string name;
  Json value;  // one that asks for something
};

std::vector<DocumentedKey> KeysIn(const std::string& system) {
  std::vector<DocumentedKey> keys;
  std::ifstream in("train/foreign/testdata/keys/" + system + ".txt");
  for (std::string line; std::getline(in, line);) {
    const size_t tab = line.find('\t');
    keys.push_back({line.substr(0, tab), Json::parse(line.substr(tab + 1))});
  }
  EXPECT_GT(keys.size(), 50u) << system;
  return keys;
}

// {"a": {"b": value}} of "a.b".
void PutAt(const std::string& path, const Json& value, Json* object) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    (*object)[path] = value;
  } else {
    PutAt(path.substr(dot + 1), value, &(*object)[path.substr(0, dot)]);
  }
}

bool BeginsWith(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

// What a key needs beside it to mean something, by how its name begins.
using Company = std::vector<std::pair<std::string, Json>>;

Json CompanyOf(const std::string& key, const Company& company) {
  Json object = Json::object();
  for (const auto& [start, keys] : company) {
    if (BeginsWith(key, start)) return keys;
  }
  return object;
}

class EveryKeyTest : public testing::Test {
 protected:
  static std::string Write(const Json& json) {
    const std::string path = testing::TempDir() + "/every_key.json";
    std::ofstream(path) << json.dump();
    return path;
  }
  // As a key, where a flag is named.
  static std::string Spelt(std::string message) {
    std::replace(message.begin(), message.end(), '-', '_');
    return message;
  }
  static Json Resolved(const ResolvedRun& run) { return Json::parse(run.config.ToJson().dump()); }

  // A run with the key beside one without it.
  void Check(const DocumentedKey& key, const RunSources& with, const RunSources& without) {
    const auto run = ResolveRun(with), base = ResolveRun(without);
    ASSERT_TRUE(run.ok() && base.ok()) << key.name << Message(run.status());
    EXPECT_TRUE(base->status().ok()) << key.name << ": " << base->status();
    const auto verdict =
        std::find_if(run->verdicts.begin(), run->verdicts.end(), [&](const KeyVerdict& v) {
          return v.key == key.name || BeginsWith(v.key, key.name + ".");
        });
    if (key.value == Json::object() && verdict == run->verdicts.end()) return;  // no keys in it
    ASSERT_NE(verdict, run->verdicts.end()) << key.name << " has no verdict";
    EXPECT_FALSE(BeginsWith(verdict->reason, "unknown key")) << key.name;
    EXPECT_NE(verdict->reason, "") << key.name;
    ++fates_[FateName(verdict->fate)];
    const std::string leaf = key.name.substr(key.name.rfind('.') + 1);
    const Json before = Resolved(*base), after = Resolved(*run);
    switch (verdict->fate) {
      case KeyFate::kRefused:
        EXPECT_FALSE(run->status().ok()) << key.name;
        EXPECT_NE(Spelt(Message(run->status())).find(leaf), std::string::npos) << run->status();
        break;
      case KeyFate::kNoEffect:
        EXPECT_TRUE(run->status().ok()) << key.name << ": " << run->status();
        EXPECT_EQ(before, after) << key.name << ": " << Json::diff(before, after);
        break;
      case KeyFate::kHonoured:
        EXPECT_TRUE(run->status().ok()) << key.name << ": " << run->status();
        ASSERT_NE(FindRunConfigKey(key.name), nullptr) << key.name;
        EXPECT_EQ(FindRunConfigKey(key.name)->key, key.name);
        EXPECT_TRUE(run->config.IsSet(key.name)) << key.name;
        break;
      case KeyFate::kTranslated:
        EXPECT_TRUE(run->status().ok()) << key.name << ": " << run->status();
        ExpectChanged(key.name, *verdict, *base, *run);
        break;
      case KeyFate::kDefault:
        ADD_FAILURE() << key.name << " was given";
        break;
    }
  }

  // A key of the run is set that was not, or has another value.
  static void ExpectChanged(const std::string& key, const KeyVerdict& verdict,
                            const ResolvedRun& base, const ResolvedRun& run) {
    if (verdict.reason == "how ranks are started") return;  // accelerate_config_test.cc
    if (verdict.reason == "the keys of that file") return;  // which have their own verdicts
    if (verdict.reason == "resume") {
      EXPECT_TRUE(run.resume.has_value() && !base.resume.has_value());
      return;
    }
    bool changed = false;
    for (const std::string& ours : KeysOf(verdict.reason)) {
      EXPECT_NE(FindRunConfigKey(ours), nullptr) << key << " becomes " << ours;
      changed = changed || (run.config.IsSet(ours) && !base.config.IsSet(ours)) ||
                run.config.Get(ours) != base.config.Get(ours);
    }
    EXPECT_TRUE(changed) << key << " becomes " << verdict.reason << ", which is as it was";
  }

  void CheckArguments(const std::string& system) {
    const Json half = {{"dtype", "float16"}};
    const Json sharded = {{"zero", 3}};
    const Company company = {{"initial_scale", half},
                             {"min_scale", half},
                             {"max_scale", half},
                             {"growth_", half},
                             {"backoff_factor", half},
                             {"hysteresis", half},
                             {"communication_dtype", sharded},
                             {"cpu_offload", sharded},
                             {"offload_", sharded},
                             {"num_model_chunks", {{"pp", 2}, {"schedule", "interleaved"}}},
                             {"pp_style", {{"pp", 2}}},
                             {"lora_", {{"adapter", "lora"}}},
                             {"use_rslora", {{"use_peft", true}}},
                             {"use_dora", {{"use_peft", true}}},
                             {"fsdp_", {{"fsdp", "full_shard"}}},
                             {"zero.model_config.shard_strategy", Json::object()},
                             {"zero.level", Json::object()},
                             {"loss_args.", half},
                             {"zero.", {{"zero", Json::object()}}},
                             {"fp16.mode", Json::object()},
                             {"fp16.", {{"fp16", {{"mode", "naive"}}}}},
                             {"optimizer.momentum", {{"optimizer", {{"type", "SGD"}}}}},
                             {"model.num_chunks", {{"pp", 2}}}};
    for (const DocumentedKey& key : KeysIn(system)) {
      const Json base = CompanyOf(key.name, company);
      Json with = base;
      PutAt(key.name, key.value, &with);
      Check(key, {.flags = with}, {.flags = base});
    }
  }

  std::map<std::string, int> fates_;
};

TEST_F(EveryKeyTest, HuggingFace4) {
  CheckArguments("transformers4");
  EXPECT_GT(fates_["translated"], 20);
  EXPECT_GT(fates_["honoured"], 8);
  EXPECT_GT(fates_["no-effect"], 20);
  EXPECT_GT(fates_["refused"], 20);
}
TEST_F(EveryKeyTest, HuggingFace5) { CheckArguments("transformers5"); }
TEST_F(EveryKeyTest, Trl) {
  CheckArguments("trl");
  EXPECT_GT(fates_["translated"], 5);
  EXPECT_GT(fates_["no-effect"], 15);
  EXPECT_GT(fates_["refused"], 20);
}
TEST_F(EveryKeyTest, FlagAi) { CheckArguments("flagai"); }
TEST_F(EveryKeyTest, ColossalAi) { CheckArguments("colossalai"); }
TEST_F(EveryKeyTest, ColossalAiFiles) {
  CheckArguments("colossalai_files");
  EXPECT_GT(fates_["translated"], 40);
  EXPECT_GT(fates_["no-effect"], 20);
  EXPECT_GT(fates_["refused"], 10);
}

TEST_F(EveryKeyTest, DeepSpeed) {
  const Json adam = {{"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.1}}}}}};
  const auto schedule = [&](const char* type, Json params) {
    Json ds = adam;
    ds["scheduler"] = {{"type", type}, {"params", std::move(params)}};
    return ds;
  };
  const Json stage3 = {{"zero_optimization", {{"stage", 3}}}};
  const Json stage1 = {{"zero_optimization", {{"stage", 1}}}};
  const Company company = {
      {"optimizer.params", adam},
      {"scheduler.params.total_num_steps",
       schedule("WarmupDecayLR", {{"total_num_steps", 20}, {"warmup_type", "linear"}})},
      {"scheduler.params.cos_", schedule("WarmupCosineLR", {{"total_num_steps", 20}})},
      {"scheduler.params.warmup_min_ratio", schedule("WarmupCosineLR", {{"total_num_steps", 20}})},
      {"scheduler.params.warmup_type", schedule("WarmupLR", {{"warmup_type", "linear"}})},
      {"scheduler.params", schedule("WarmupLR", Json::object())},
      {"scheduler.type", schedule("WarmupDecayLR", {{"total_num_steps", 20}})},
      {"optimizer.legacy_fusion", adam},
      {"fp16.hysteresis", {{"fp16", {{"enabled", true}}}, {"zero_optimization", {{"stage", 1}}}}},
      {"fp16.", {{"fp16", {{"enabled", true}}}}},
      {"torch_autocast.dtype", {{"torch_autocast", {{"enabled", true}, {"dtype", "fp16"}}}}},
      {"zero_optimization.reduce_bucket_size", stage1},
      {"zero_optimization.offload_optimizer.ratio",
       {{"zero_optimization", {{"stage", 3}, {"offload_optimizer", {{"device", "cpu"}}}}}}},
      {"zero_optimization.offload_param.",
       {{"zero_optimization", {{"stage", 3}, {"offload_param", {{"device", "none"}}}}}}},
      {"zero_optimization.offload_optimizer.",
       {{"zero_optimization", {{"stage", 3}, {"offload_optimizer", {{"device", "none"}}}}}}},
      {"zero_optimization.contiguous", {{"zero_optimization", {{"stage", 1}}}}},
      {"expert_parallel.enabled", Json::object()},
      {"expert_parallel.", {{"expert_parallel", {{"enabled", true}}}}},
      {"zero_optimization.stage3", stage3},
      {"zero_optimization.", stage3},
      {"activation_checkpointing.contiguous",
       {{"activation_checkpointing", {{"partition_activations", true}}}}}};
  for (const DocumentedKey& key : KeysIn("deepspeed")) {
    Json base = CompanyOf(key.name, company);
    Json with = base;
    PutAt(key.name, key.value, &with);
    // Of a type that is chosen there is no run without it.
    if (key.name == "fp16.enabled" || key.name == "optimizer.type") base = Json::object();
    if (key.name == "scheduler.type") base = adam;
    const std::string path = testing::TempDir() + "/base.json";
    std::ofstream(path) << base.dump();
    Check(key, {.deepspeed = Write(with)}, {.deepspeed = path});
  }
  EXPECT_GT(fates_["translated"], 30);
}

TEST_F(EveryKeyTest, Accelerate) {
  const Company company = {
      {"fsdp_config", {{"distributed_type", "FSDP"}}},
      {"deepspeed_config.zero_stage", {{"distributed_type", "DEEPSPEED"}}},
      {"deepspeed_config",
       {{"distributed_type", "DEEPSPEED"}, {"deepspeed_config", {{"zero_stage", 3}}}}},
      {"megatron_lm_config", {{"distributed_type", "MEGATRON_LM"}}}};
  const std::map<std::string, Json> values = {{"fsdp_sharding_strategy", "SHARD_GRAD_OP"},
                                              {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                                              {"fsdp_transformer_layer_cls_to_wrap", "GPT2Block"},
                                              {"fsdp_min_num_params", 1000},
                                              {"fsdp_backward_prefetch", "BACKWARD_POST"},
                                              {"fsdp_forward_prefetch", false},
                                              {"fsdp_offload_params", true},
                                              {"fsdp_reshard_after_forward", false},
                                              {"fsdp_activation_checkpointing", true},
                                              {"fsdp_activation_checkpointing_offload", true},
                                              {"deepspeed_config_file", "none"},
                                              {"zero_stage", 1},
                                              {"offload_optimizer_device", "cpu"},
                                              {"offload_param_device", "cpu"},
                                              {"gradient_accumulation_steps", 4},
                                              {"gradient_clipping", 0.5},
                                              {"megatron_lm_sequence_parallelism", true},
                                              {"megatron_lm_recompute_activations", true},
                                              {"megatron_lm_use_distributed_optimizer", true},
                                              {"megatron_lm_optimizer_cpu_offload", false},
                                              {"megatron_lm_tp_degree", 2},
                                              {"megatron_lm_pp_degree", 2},
                                              {"megatron_lm_expert_model_parallel_size", 2},
                                              {"megatron_lm_context_parallel_size", 2},
                                              {"parallelism_config_cp_size", 2},
                                              {"parallelism_config_sp_size", 2},
                                              {"megatron_lm_num_micro_batches", 2},
                                              {"megatron_lm_gradient_clipping", 0.5},
                                              {"parallelism_config_tp_size", 2},
                                              {"parallelism_config_dp_replicate_size", 2},
                                              {"parallelism_config_dp_shard_size", 2},
                                              {"main_process_port", 29500},
                                              {"num_processes", 2}};
  for (DocumentedKey key : KeysIn("accelerate")) {
    const std::string leaf = key.name.substr(key.name.rfind('.') + 1);
    if (values.count(leaf) > 0) key.value = values.at(leaf);
    const Json base = CompanyOf(key.name, company);
    Json with = base;
    PutAt(key.name, key.value, &with);
    const std::string path = testing::TempDir() + "/base.yaml";
    std::ofstream(path) << base.dump();
    Check(key, {.accelerate = Write(with)}, {.accelerate = path});
  }
}

// What is said to take the place of another system's key is a key.
TEST_F(EveryKeyTest, OtherSystemsKeysNameOurs) {
  int named = 0;
  for (const ForeignKey& key : OtherSystems().keys) {
    EXPECT_EQ(FindRunConfigKey(key.name), nullptr) << key.name;
    if (!BeginsWith(key.reason, "use ")) continue;
    const std::string ours = key.reason.substr(4, key.reason.find_first_of(" ,", 4) - 4);
    const ForeignTable& known = RunKeys();
    EXPECT_TRUE(FindRunConfigKey(ours) != nullptr ||
                std::any_of(known.begin(), known.end(),
                            [&](const ForeignKey& other) {
                              return other.name == ours && other.fate == KeyFate::kTranslated;
                            }))
        << key.name << ": " << key.reason;
    ++named;
  }
  EXPECT_GT(named, 30);
}

}  // namespace
}  // namespace tessera::train
