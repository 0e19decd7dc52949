// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/deepspeed_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include "nlohmann/json.hpp"
#include "optim/schedule.h"
#include "train/config/run_config.h"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

Json Translated(const std::string& text, int ranks = 1) {
  const Translation ds = TranslateDeepSpeed(Json::parse(text), "ds.json", ranks);
  EXPECT_TRUE(ds.status().ok()) << text << ": " << ds.status();
  return ds.status().ok() ? *ds.keys : Json("failed");
}

std::string Refusal(const std::string& text, int ranks = 1) {
  const Translation ds = TranslateDeepSpeed(Json::parse(text), "ds.json", ranks);
  if (ds.status().ok()) return "taken: " + ds.keys->dump();
  const std::string message = Message(ds.status());
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

void ExpectRefused(const std::string& text, const std::string& part, int ranks = 1) {
  const std::string message = Refusal(text, ranks);
  EXPECT_NE(message.find(part), std::string::npos) << text << ": " << message;
}

TEST(DeepSpeedConfigTest, AFileAsFlagAiHasIt) {
  const Json keys = Translated(R"({
    "train_micro_batch_size_per_gpu": 64,
    "gradient_accumulation_steps": 2,
    "steps_per_print": 100,
    "gradient_clipping": 1.0,
    "zero_optimization": {
      "stage": 2, "contiguous_gradients": false, "overlap_comm": true, "reduce_scatter": true,
      "reduce_bucket_size": 5e7, "allgather_bucket_size": 5e7, "cpu_offload": true
    },
    "zero_allow_untested_optimizer": true,
    "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2,
             "min_loss_scale": 1},
    "optimizer": {"type": "Adam", "params": {"lr": 0.0004, "weight_decay": 0.01,
                                             "betas": [0.9, 0.98], "eps": 1e-6}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.0004,
                  "warmup_num_steps": 100, "total_num_steps": 5000, "warmup_type": "linear"}},
    "activation_checkpointing": {"partition_activations": true,
                                 "contiguous_memory_optimization": true},
    "wall_clock_breakdown": false
  })");
  const Json expected = {{"batch_size", 64},
                         {"gradient_accumulation_steps", 2},
                         {"log_interval", 100},
                         {"max_grad_norm", 1.0},
                         {"zero", 2},
                         {"overlap_comm", true},
                         {"bucket_cap_mb", 5e7 * 4 / 1048576},
                         {"cpu_offload", true},
                         {"dtype", "float16"},
                         {"growth_interval", 1000},
                         {"hysteresis", 2},
                         {"min_scale", 1.0},
                         {"optimizer", "adamw"},
                         {"lr", 0.0004},
                         {"weight_decay", 0.01},
                         {"betas", {0.9, 0.98}},
                         {"eps", 1e-6},
                         {"lr_schedule", "linear"},
                         {"min_lr", 0.0},
                         {"warmup_steps", 100},
                         {"warmup_type", "linear"},
                         {"warmup_min_lr", 0.0},
                         {"schedule_steps", 5000},
                         {"schedule_offset", -2},
                         {"checkpoint_activations", true},
                         {"partition_activations", true},
                         {"wall_clock_breakdown", false}};
  EXPECT_EQ(keys, expected) << Json::diff(expected, keys);
  // Every key exists, with the right type.
  RunConfig config;
  const Status status = ApplyRunConfigJson(keys, "ds.json", &config);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(config.growth_interval, 1000);
}

TEST(DeepSpeedConfigTest, AutoAndAbsenceLeaveTesseraItsDefaults) {
  EXPECT_EQ(Translated("{}"), Json::object());
  // What DeepSpeed does without them, unless something else is said.
  EXPECT_EQ(TranslateDeepSpeed(Json::object(), "ds.json", 1).defaults,
            Json({{"lr_schedule", "constant"}, {"max_grad_norm", 0.0}, {"zero", 0}}));
  EXPECT_EQ(Translated(R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "fp16": {"enabled": "auto", "loss_scale": "auto"}, "bf16": {"enabled": "auto"},
    "zero_optimization": {"reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                              "weight_decay": "auto"}}})"),
            Json({{"hysteresis", 1}, {"optimizer", "adamw"}, {"zero", 0}}));
}

TEST(DeepSpeedConfigTest, TwoBatchSizesGiveTheThird) {
  const auto sizes = [](const std::string& text, int ranks) {
    const Json keys = Translated(text, ranks);
    return keys.value("batch_size", Json()).dump() + " x " +
           keys.value("gradient_accumulation_steps", Json()).dump();
  };
  EXPECT_EQ(sizes(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2})", 4), "2 x 3");
  EXPECT_EQ(sizes(R"({"train_batch_size": 24, "gradient_accumulation_steps": 2})", 4), "3 x 2");
  EXPECT_EQ(sizes(R"({"train_batch_size": 24})", 4), "6 x 1");
  EXPECT_EQ(sizes(R"({"train_micro_batch_size_per_gpu": 5})", 4), "5 x 1");
  EXPECT_EQ(sizes(R"({"gradient_accumulation_steps": 5})", 4), "null x 5");
  const std::string all = R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2,
                              "gradient_accumulation_steps": 3})";
  EXPECT_EQ(sizes(all, 4), "2 x 3");
  ExpectRefused(all, "ds.json: 'train_batch_size' is 24, but", 2);
  ExpectRefused(R"({"train_batch_size": 25, "train_micro_batch_size_per_gpu": 2})",
                "'train_batch_size' is 25, which is not a multiple of "
                "train_micro_batch_size_per_gpu * ranks, 8",
                4);
  ExpectRefused(R"({"train_batch_size": 6})", "not a multiple of the ranks, 4", 4);
  ExpectRefused(R"({"train_batch_size": 0})", "'train_batch_size' must be at least 1, not 0");
  ExpectRefused(R"({"train_batch_size": 2.5})", "must be an integer, not 2.5");
  ExpectRefused(R"({"train_batch_size": 9e15, "train_micro_batch_size_per_gpu": 8e15,
                    "gradient_accumulation_steps": 8e15})",
                "must be an integer, not 9e+15");
  ExpectRefused(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8e15,
                    "gradient_accumulation_steps": 8e15})",
                "'train_batch_size' is 8, but", 4);
}

TEST(DeepSpeedConfigTest, NumberFormats) {
  const auto dtype = [](const std::string& text) { return Translated(text).value("dtype", "-"); };
  EXPECT_EQ(dtype(R"({"bf16": {"enabled": true}})"), "bfloat16");
  EXPECT_EQ(dtype(R"({"bfloat16": {"enabled": true}, "fp16": {"enabled": false}})"), "bfloat16");
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false, "loss_scale_window": 500}})"), "float32");
  EXPECT_EQ(dtype(R"({"fp16": {}})"), "-");
  ExpectRefused(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})",
                "'bf16' and 'fp16' are both enabled");
  ExpectRefused(R"({"bf16": {}, "bfloat16": {}})", "'bfloat16' is another name of 'bf16'");
  for (const char* key :
       {"loss_scale_window", "hysteresis", "min_loss_scale", "initial_scale_power"}) {
    ExpectRefused(Concat(R"({"fp16": {"loss_scale": 128, ")", key, R"(": 4}})"),
                  Concat("'fp16.", key, "' belongs to dynamic loss scaling"));
  }
  const Json fixed = Translated(R"({"fp16": {"enabled": true, "loss_scale": 128}})");
  EXPECT_EQ(fixed, Json({{"dtype", "float16"}, {"loss_scale", 128.0}}));
  EXPECT_EQ(Translated(R"({"fp16": {"initial_scale_power": 12}})")["initial_scale"], 4096.0);
  // The optimizers around half-precision parameters of stage 0 know no hysteresis.
  const auto hysteresis = [](const std::string& fp16, int stage) {
    return Translated(
               Concat(R"({"fp16": )", fp16, R"(, "zero_optimization": {"stage": )", stage, "}}"))
        .value("hysteresis", Json());
  };
  EXPECT_EQ(hysteresis(R"({"enabled": true, "hysteresis": 4})", 0), 1);
  EXPECT_EQ(hysteresis(R"({"enabled": true})", 0), 1);
  EXPECT_EQ(hysteresis(R"({"enabled": true, "hysteresis": 4})", 1), 4);
  EXPECT_EQ(hysteresis(R"({"enabled": true})", 3), Json());
  EXPECT_EQ(hysteresis(R"({"enabled": false})", 0), Json());
  // Beyond the greatest scale, which follows: else the configuration would not be in order.
  const Json large = Translated(R"({"fp16": {"initial_scale_power": 40}})");
  EXPECT_EQ(large["max_scale"], large["initial_scale"]);
  ExpectRefused(R"({"fp16": {"initial_scale_power": 65}})", "must be at most 64");
  ExpectRefused(R"({"fp16": {"hysteresis": 0}})", "'fp16.hysteresis' must be at least 1, not 0");
  ExpectRefused(R"({"fp16": {"enabled": 2}})", "'fp16.enabled' must be true or false, not 2");
  ExpectRefused(R"({"fp16": true})", "'fp16' must be an object, not true");
}

TEST(DeepSpeedConfigTest, Optimizers) {
  const auto with = [](const std::string& type, const std::string& params) {
    return R"({"optimizer": {"type": ")" + type + R"(", "params": )" + params + "}}";
  };
  // What is not given is the constructor's default.
  EXPECT_EQ(Translated(with("AdamW", "{}")), Json({{"optimizer", "adamw"},
                                                   {"lr", 1e-3},
                                                   {"betas", {0.9, 0.999}},
                                                   {"eps", 1e-8},
                                                   {"weight_decay", 0.0}}));
  // PyTorch's AdamW decays where nothing is said.
  const std::tuple<const char*, const char*, double> decays[] = {
      {"adam", R"({"torch_adam": true})", 0.01},
      {"adam", R"({"torch_adam": true, "weight_decay": 0.2})", 0.2},
      {"adam", R"({"torch_adam": true, "adam_w_mode": false})", 0},
      {"adam", R"({"torch_adam": false})", 0},
      {"AdamW", "{}", 0}};
  for (const auto& [type, params, decay] : decays) {
    EXPECT_EQ(Translated(with(type, params))["weight_decay"], decay) << type << params;
  }
  EXPECT_EQ(Translated(with("adam", R"({"adam_w_mode": false, "torch_adam": true})"))["optimizer"],
            "adam");
  EXPECT_EQ(Translated(with("SGD", R"({"lr": 0.1, "momentum": 0.8, "nesterov": false})")),
            Json({{"optimizer", "sgd"},
                  {"lr", 0.1},
                  {"momentum", 0.8},
                  {"nesterov", false},
                  {"weight_decay", 0.0}}));
  EXPECT_EQ(Translated(with("SGD", "{}"))["momentum"], 0.0);
  EXPECT_EQ(Translated(with("Lion", "{}"))["betas"], Json({0.9, 0.99}));
  EXPECT_EQ(Translated(with("Adam", R"({"max_grad_norm": 0.5})"))["max_grad_norm"], 0.5);
  EXPECT_EQ(Translated(with("SGD", R"({"nesterov": true})"))["nesterov"], true);
  for (const char* type : {"Lamb", "OneBitAdam", "OneBitLamb", "ZeroOneAdam", "Muon"}) {
    ExpectRefused(with(type, "{}"), Concat("'optimizer.type' is '", type, "'"));
  }
  ExpectRefused(with("AdamW", R"({"adam_w_mode": false})"), "'optimizer.params.adam_w_mode'");
  ExpectRefused(with("Adam", R"({"amsgrad": true})"), "'optimizer.params.amsgrad' is true");
  ExpectRefused(with("Adam", R"({"bias_correction": false})"),
                "'optimizer.params.bias_correction'");
  ExpectRefused(with("Adam", R"({"betas": [0.9]})"), "'optimizer.params.betas' must be two");
  ExpectRefused(with("Adam", R"({"betas": 0.9})"), "'optimizer.params.betas' must be two");
  ExpectRefused(with("Adam", R"({"betas": "x"})"), "must be a list of numbers, not \"x\"");
  ExpectRefused(R"({"gradient_clipping": 2, "optimizer": {"type": "Adam",
                    "params": {"max_grad_norm": 1}}})",
                "'optimizer.params.max_grad_norm' and 'gradient_clipping' contradict");
  ExpectRefused(with("SGD", R"({"betas": [0.9, 0.99]})"),
                "'optimizer.params.betas' means nothing beside the other keys");
  ExpectRefused(with("Adam", R"({"weight_decya": 1})"), "did you mean 'weight_decay'?");
  ExpectRefused(R"({"optimizer": {"params": {}}})", "'optimizer' has no type");
}

// DeepSpeed's schedulers as their formulas are written there: `i` is last_batch_iteration, which is
// -1 at the first step and 0 at the second.
double TheirRate(const std::string& type, bool log, double least, double most, int warmup,
                 int total, int i) {
  if (i < 0) return least;
  double gamma = 1;
  if (i < warmup) {
    gamma = log ? std::log(i + 1) / std::log(warmup) : static_cast<double>(i) / warmup;
  } else if (type == "WarmupDecayLR") {
    gamma = std::max(0.0, static_cast<double>(total - i) / std::max(1, total - warmup));
  }
  return least + (most - least) * gamma;
}

TEST(DeepSpeedConfigTest, SchedulersAreTheirFormulas) {
  for (const char* type : {"WarmupLR", "WarmupDecayLR"}) {
    for (const bool log : {false, true}) {
      Json params = {{"warmup_min_lr", 1e-5}, {"warmup_max_lr", 0.3}, {"warmup_num_steps", 10}};
      if (!log) params["warmup_type"] = "linear";  // its absence means log
      if (std::string(type) == "WarmupDecayLR") params["total_num_steps"] = 50;
      RunConfig config;
      const Json keys =
          Translated(Json{{"scheduler", {{"type", type}, {"params", params}}}}.dump());
      ASSERT_TRUE(ApplyRunConfigJson(keys, "ds.json", &config).ok());
      const auto schedule = optim::MakeSchedule(config.schedule_of(60));
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      for (int step = 1; step <= 60; ++step) {
        EXPECT_NEAR(schedule->At(step), TheirRate(type, log, 1e-5, 0.3, 10, 50, step - 2), 1e-12)
            << type << (log ? " log " : " linear ") << step;
      }
    }
  }
}

TEST(DeepSpeedConfigTest, Schedulers) {
  const auto with = [](const std::string& type, const std::string& params) {
    return R"({"optimizer": {"type": "Adam", "params": {"lr": 0.1}}, "scheduler": {"type": ")" +
           type + R"(", "params": )" + params + "}}";
  };
  const std::string linear = R"("warmup_type": "linear", "warmup_num_steps": 10)";
  const Json constant = Translated(with("WarmupLR", "{" + linear + R"(, "warmup_max_lr": 0.2})"));
  EXPECT_EQ(constant["lr_schedule"], "constant");
  EXPECT_EQ(constant["lr"], 0.2) << "the scheduler's rate is the one that DeepSpeed trains with";
  EXPECT_EQ(constant["warmup_steps"], 10);
  EXPECT_FALSE(constant.contains("schedule_steps"));
  EXPECT_EQ(Translated(with("WarmupLR", "{}"))["warmup_type"], "log");
  EXPECT_EQ(Translated(with("WarmupLR", R"({"warmup_type": "linear"})"))["warmup_steps"], 1000);
  EXPECT_EQ(Translated(with("WarmupLR", R"({"warmup_num_steps": 1})"))["warmup_steps"], 2);
  EXPECT_FALSE(
      Translated(with("WarmupLR", R"({"warmup_num_steps": "auto"})")).contains("warmup_steps"));
  EXPECT_EQ(Translated(with("WarmupLR", R"({"last_batch_iteration": 20})"))["schedule_offset"], 19);
  EXPECT_EQ(Translated(with("WarmupLR", "{" + linear + "}"))["lr"], 0.1);

  const Json cosine = Translated(
      with("WarmupCosineLR", "{" + linear + R"(, "total_num_steps": 50, "cos_min_ratio": 0.05})"));
  EXPECT_EQ(cosine["lr_schedule"], "cosine");
  EXPECT_DOUBLE_EQ(cosine["min_lr"], 0.005);
  EXPECT_EQ(cosine["schedule_steps"], 50);

  ExpectRefused(with("WarmupLR", R"({"warmup_type": "square"})"), "expected log or linear");
  ExpectRefused(with("WarmupLR", "{" + linear + R"(, "total_num_steps": 5})"),
                "'scheduler.params.total_num_steps' means nothing beside the other keys");
  ExpectRefused(with("WarmupDecayLR", "{" + linear + "}"), "'scheduler.params.total_num_steps'");
  ExpectRefused(with("OneCycle", "{}"), "'scheduler.type' is 'OneCycle', whose shape");
  ExpectRefused(with("StepLR", "{}"), "'scheduler.type' is 'StepLR', which is not known");
  ExpectRefused(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear",
                    "total_num_steps": 5}}})",
                "'scheduler.params.cos_min_ratio' is a share of the optimizer's lr");
  ExpectRefused(R"({"scheduler": {}})", "'scheduler' has no type");
}

TEST(DeepSpeedConfigTest, Zero) {
  const auto with = [](const std::string& keys) {
    return R"({"zero_optimization": {)" + keys + "}}";
  };
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(Translated(with(Concat(R"("stage": )", stage))), Json({{"zero", stage}}));
  }
  ExpectRefused(with(R"("stage": 4)"), "'zero_optimization.stage' must be 0, 1, 2 or 3, not 4");
  ExpectRefused(R"({"zero_optimization": true})", "'zero_optimization' must be an object");
  EXPECT_EQ(Translated(with(R"("reduce_bucket_size": 262144)"))["bucket_cap_mb"], 1.0);
  ExpectRefused(with(R"("reduce_bucket_size": 0)"), "must be at least 1");
  EXPECT_EQ(Translated(with(R"("stage": 3, "reduce_bucket_size": 5)")), Json({{"zero", 3}}))
      << "a bucket is a block there";
  EXPECT_EQ(Translated(with(R"("ignore_unused_parameters": true)"))["find_unused_parameters"],
            true);
  EXPECT_EQ(
      Translated(with(R"("stage": 2, "offload_optimizer": {"device": "cpu"})"))["cpu_offload"],
      true);
  EXPECT_EQ(
      Translated(with(R"("stage": 2, "offload_optimizer": {"device": "none"})"))["cpu_offload"],
      false);
  ExpectRefused(with(R"("cpu_offload": true)"), "'zero_optimization.cpu_offload' needs stage");
  ExpectRefused(with(R"("stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "none"})"),
                "contradict each other");
  ExpectRefused(with(R"("stage": 3, "offload_optimizer": {"device": "nvme"})"),
                "'zero_optimization.offload_optimizer.device' is 'nvme'");
  EXPECT_EQ(
      Translated(with(R"("stage": 3, "offload_optimizer": {"pin_memory": true, "ratio": 0.3})")),
      Json({{"zero", 3}, {"cpu_offload", true}, {"offload_fraction", 0.3}}));
  EXPECT_EQ(Translated(with(R"("stage": 3, "offload_param": {"device": "cpu"})")),
            Json({{"zero", 3}, {"offload_parameters", true}}));
  ExpectRefused(with(R"("stage": 2, "offload_param": {"device": "cpu"})"),
                "'zero_optimization.offload_param' needs stage 3; the stage is 2");
  ExpectRefused(with(R"("stage": 3, "offload_param": {"device": "nvme"})"),
                "'zero_optimization.offload_param.device' is 'nvme'");
  EXPECT_EQ(Translated(with(R"("stage": 3, "offload_param": {"device": "none"})")),
            Json({{"zero", 3}}));
  EXPECT_EQ(Translated(with(R"("stage": 3, "stage3_prefetch_bucket_size": 1e6,
                                "stage3_max_live_parameters": 1e9,
                                "stage3_param_persistence_threshold": 1e4)")),
            Json({{"zero", 3},
                  {"prefetch_elements", 1000000},
                  {"limit_all_gathers", false},
                  {"max_live_elements", 1000000000},
                  {"persistence_threshold", 10000}}));
  EXPECT_EQ(Translated(with(R"("stage": 2, "stage3_max_live_parameters": 1e9)")),
            Json({{"zero", 2}}));
  // What tunes DeepSpeed's own order of work changes nothing.
  for (const char* key : {"\"sub_group_size\": 1e9", "\"stage3_max_reuse_distance\": 1e9",
                          "\"round_robin_gradients\": true", "\"allgather_bucket_size\": 2e8",
                          "\"reduce_scatter\": false", "\"allgather_partitions\": false",
                          "\"stage3_gather_16bit_weights_on_model_save\": false",
                          "\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}"}) {
    const Translation ds =
        TranslateDeepSpeed(Json::parse(with(Concat("\"stage\": 2, ", key))), "ds.json", 1);
    EXPECT_TRUE(ds.status().ok()) << ds.status();
    Json keys = ds.keys;
    keys.erase("cpu_offload");
    EXPECT_EQ(keys, Json({{"zero", 2}})) << key;
    EXPECT_TRUE(std::any_of(ds.verdicts.begin(), ds.verdicts.end(), [](const KeyVerdict& v) {
      return v.fate == KeyFate::kNoEffect && !v.reason.empty();
    })) << key;
  }
  ExpectRefused(with(R"("overlap_com": true)"), "did you mean 'overlap_comm'?");
}

TEST(DeepSpeedConfigTest, MonitorsAreFormsOfTheRows) {
  const std::string board = R"("tensorboard": {"enabled": true, "output_path": "x"})";
  EXPECT_EQ(Translated("{" + board + "}"), Json({{"report_to", Json::array({"tensorboard"})}}));
  EXPECT_EQ(Translated("{" + board + R"(, "csv_monitor": {"enabled": true, "job_name": "y"}})"),
            Json({{"report_to", {"tensorboard", "csv"}}}));
  EXPECT_EQ(Translated("{" + board + R"(, "csv_monitor": {"enabled": false}})"),
            Json({{"report_to", Json::array({"tensorboard"})}}));
  EXPECT_EQ(Translated(R"({"tensorboard": {"enabled": false, "job_name": "y"}})"), Json::object());
  ExpectRefused(R"({"csv_monitor": {"enable": true}})", "did you mean 'enabled'?");
}

TEST(DeepSpeedConfigTest, ExpertsAreSharedOutWhereAutoEpIsEnabled) {
  EXPECT_EQ(Translated(R"({"expert_parallel": {"enabled": true, "autoep_size": 4,
                                               "preset_model": "mixtral", "top_k": "auto",
                                               "load_balance_coeff": null}})"),
            Json({{"ep", 4}}));
  EXPECT_EQ(Translated(R"({"expert_parallel": {"enabled": true}})"), Json({{"ep", 1}}));
  EXPECT_EQ(Translated(R"({"expert_parallel": {"enabled": false, "autoep_size": 4}})"),
            Json::object());
  EXPECT_EQ(Translated(R"({"expert_parallel": {"autoep_size": 4}})"), Json::object());
  EXPECT_EQ(Translated(R"({"use_data_before_expert_parallelism": true})"), Json::object());
  ExpectRefused(R"({"expert_parallel": {"enabled": true, "autoep_size": 0}})",
                "'expert_parallel.autoep_size' must be at least 1");
  ExpectRefused(R"({"expert_parallel": {"enabled": true, "top_k": 2}})",
                "'expert_parallel.top_k' is refused: ");
  ExpectRefused(R"({"expert_parallel": {"enabled": true, "load_balance_coeff": 0.001}})",
                "'expert_parallel.load_balance_coeff' is 0.001, refused: ");
  ExpectRefused(R"({"expert_parallel": {"enabled": true, "ep_size": 2}})",
                "unknown key 'expert_parallel.ep_size'");
  ExpectRefused(R"({"expert_parallel": 4})", "'expert_parallel' must be an object, not 4");
}

TEST(DeepSpeedConfigTest, WhatIsNotHereIsRefusedByName) {
  for (const char* key :
       {"wandb", "comet", "flops_profiler", "comms_logger", "amp", "autotuning", "elasticity",
        "sparse_attention", "curriculum_learning", "data_efficiency", "progressive_layer_drop",
        "eigenvalue", "quantize_training", "compression_training", "hybrid_engine", "pipeline",
        "nebula"}) {
    ExpectRefused(Concat(R"({")", key, R"(": {"enabled": true}})"),
                  Concat("ds.json: '", key, "' is refused: "));
    EXPECT_EQ(Translated(Concat(R"({")", key, R"(": {"enabled": false}})")), Json::object());
  }
  ExpectRefused(R"({"sparse_gradients": true})", "'sparse_gradients' is true, refused: ");
  EXPECT_EQ(Translated(R"({"sparse_gradients": false})"), Json::object());
  EXPECT_EQ(Translated(R"({"dataloader_drop_last": true})"), Json({{"drop_last", true}}));
  ExpectRefused(R"({"communication_data_type": "fp16"})", "'communication_data_type' is 'fp16'");
  EXPECT_EQ(Translated(R"({"communication_data_type": "fp16", "zero_optimization": {"stage": 1}})"),
            Json({{"zero", 1}, {"communication_dtype", "fp16"}}));
  ExpectRefused(R"({"data_types": {"grad_accum_dtype": "bf16"}})", "'data_types.grad_accum_dtype'");
  ExpectRefused(R"({"activation_checkpointing": {"contiguous_memory_optimization": true}})",
                "needs partition_activations");
  EXPECT_EQ(Translated(R"({"activation_checkpointing": {"cpu_checkpointing": true}})"),
            Json({{"checkpoint_activations", true}, {"offload_activations", true}}));
  EXPECT_EQ(Translated(R"({"activation_checkpointing": {"number_checkpoints": 4}})"),
            Json::object());
  EXPECT_EQ(Translated(R"({"fp32_allreduce": true, "zero_allow_untested_optimizer": false})"),
            Json::object());
  ExpectRefused(R"({"steps_per_print": 0})", "'steps_per_print' must be above 0");
  ExpectRefused(R"({"gradient_clipping": -1})", "'gradient_clipping' must be at least 0");
  ExpectRefused(R"({"gradient_clip": 1})", "unknown key 'gradient_clip'; did you");
  ExpectRefused(R"({"zzz": 1})", "ds.json: unknown key 'zzz'");
  ExpectRefused("[]", "ds.json: a JSON object is needed");
}

TEST(ConfigAliasesTest, FilesAndFlagsUnderstandThem) {
  RunConfig config;
  ASSERT_TRUE(ApplyRunConfigJson({{"model_parallel_size", 2},
                                  {"precision", "bf16"},
                                  {"env_type", "deepspeed+mpu"},
                                  {"tp", 2}},
                                 "run.json", &config)
                  .ok());
  EXPECT_EQ(config.tp, 2);
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_EQ(config.env_type, "zero+tp");
  EXPECT_TRUE(SetRunConfigField(&config, "tp_size", "3").ok());
  EXPECT_EQ(config.tp, 3);
  EXPECT_TRUE(SetRunConfigField(&config, "ep_size", "4").ok());
  EXPECT_EQ(config.ep, 4);
  EXPECT_EQ(Message(ApplyRunConfigJson({{"tp", 2}, {"tp_size", 4}}, "run.json", &config)),
            "run.json: 'tp' and 'tp_size' are one key (tp) with two values");
}

}  // namespace
}  // namespace tessera::train
