// SPDX-License-Identifier: Apache-2.0
// Arguments of Hugging Face's Trainer that depend on each other, Megatron-LM's schedules, and what
// words mean in one system's run.
#include "train/foreign/run_keys.h"

#include <gtest/gtest.h>

#include <fstream>
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
      {{{"fsdp", "auto_wrap offload"}}, {{"zero", 3}, {"offload_parameters", true}}},
      {{{"fsdp", "no_shard offload"}, {"fsdp_config", {{"offload_params", true}}}},
       {{"zero", 0}, {"cpu_offload", false}}},
      // FSDP2 says whether or how: a switch, in whatever spelling, or FSDP1's name.
      {{{"fsdp", true}, {"fsdp_config", {{"version", 2}, {"reshard_after_forward", "False"}}}},
       {{"zero", 3}, {"reshard_after_forward", false}}},
      {{{"fsdp", true},
        {"fsdp_config", {{"version", 2}, {"reshard_after_forward", "SHARD_GRAD_OP"}}}},
       {{"zero", 2}}},
      {{{"warmup_ratio", 0.25}, {"warmup_steps", 0}}, {{"warmup_steps", 0.25}}},
      {{{"warmup_ratio", "0.25"}}, {{"warmup_steps", 0.25}}},
      {{{"label_names", Json::array({"labels"})}}, {{"seed", 42}}},
      {{{"warm_up", 0.25}, {"warm_up_iters", 0}}, {{"warmup_steps", 0.25}}},
      {{{"warm_up", 0.25}, {"warm_up_iters", 7}}, {{"warmup_steps", 7.0}}},
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

TEST(RunKeysTest, TrlsArguments) {
  const std::pair<Json, Json> cases[] = {
      {{{"use_peft", true}},
       {{"adapter", "lora"}, {"lora_r", 16}, {"lora_alpha", 32}, {"lora_dropout", 0.05}}},
      {{{"use_peft", "True"}, {"use_dora", true}, {"lora_r", 4}, {"lora_target_modules", "c_attn"}},
       {{"adapter", "dora"}, {"lora_r", 4}, {"lora_alpha", 32}, {"target_modules", "c_attn"}}},
      {{{"adapter", "lora"}, {"target_modules", {"q_proj", "v_proj"}}, {"modules_to_save", {"h"}}},
       {{"target_modules", "q_proj,v_proj"}, {"modules_to_save", "h"}}},
      {{{"use_peft", true}, {"use_rslora", true}, {"lora_dropout", 0}},
       {{"adapter", "rslora"}, {"lora_dropout", 0}}},
      {{{"use_peft", false}, {"use_dora", true}}, {{"adapter", nullptr}}},
      {{{"max_length", 64}, {"torch_dtype", "bfloat16"}, {"loss_type", "nll"}},
       {{"seq_len", 64}, {"dtype", "bfloat16"}}},
      {{{"max_length", nullptr}, {"torch_dtype", "auto"}, {"assistant_only_loss", true}},
       {{"seq_len", nullptr}, {"dtype", "float32"}}},
  };
  for (const auto& [arguments, expected] : cases) {
    Json flags = {{"output_dir", "o"}};
    flags.update(arguments);
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = flags});
    ASSERT_TRUE(run.ok() && run->status().ok())
        << arguments << ": " << Message(run.ok() ? run->status() : run.status());
    for (const auto& [key, value] : expected.items()) {
      EXPECT_EQ(run->config.Get(key), value) << arguments << ' ' << key;
    }
  }
}

TEST(RunKeysTest, FilesOfArgumentsMayBeYaml) {
  const auto resolve = [](const std::string& name, const std::string& text) {
    const std::string path = testing::TempDir() + "/" + name;
    std::ofstream(path) << text;
    return ResolveRun({.config = path});
  };
  for (const char* name : {"sft.yaml", "sft.yml"}) {
    const auto run = resolve(name,
                             "# of trl sft\noutput_dir: o\nuse_peft: true\nlora_r: 4\n"
                             "learning_rate: 2.0e-4\nlora_target_modules: [q_proj, v_proj]\n"
                             "eval_strategy: \"no\"\ntorch_dtype: bfloat16\n");
    ASSERT_TRUE(run.ok() && run->status().ok()) << Message(run.ok() ? run->status() : run.status());
    EXPECT_EQ(run->config.Get("dialect"), "hugging-face");
    EXPECT_EQ(run->config.lora_r, 4);
    EXPECT_EQ(run->config.lr, 2e-4);
    EXPECT_EQ(run->config.Get("target_modules"), "q_proj,v_proj");
    EXPECT_EQ(run->config.dtype, "bfloat16");
  }
  const std::string folder = testing::TempDir();
  const auto failure = [&](const std::string& name, const std::string& text) {
    return Message(resolve(name, text).status());
  };
  EXPECT_EQ(failure("a.yaml", "lr: 1\nlr: 2\n"),
            folder + "/a.yaml: 'lr' is given twice (line 2); keep one of them");
  EXPECT_EQ(failure("a.yaml", "lr: [1\n").find(folder + "/a.yaml:2: not valid YAML: "), 0u);
  EXPECT_EQ(failure("a.yaml", "- lr\n"), folder + "/a.yaml: a JSON object is needed");
  EXPECT_EQ(failure("a.json", "lr: 1\n"), folder + "/a.json: not valid JSON at byte 1");
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
      {{{"use_peft", true}, {"use_rslora", true}, {"use_dora", true}},
       "use_dora and 'use_rslora' are one key (adapter)"},
      {{{"fsdp", "full_shard no_shard"}}, "fsdp has full_shard and no_shard; give one of them"},
      {{{"fsdp", "offload"}}, "fsdp is 'offload' alone; give it with full_shard or shard_grad_op"},
      {{{"fsdp", {"offload"}}}, "fsdp is 'offload' alone"},
      {{{"num_train_epochs", 0}}, "must be above 0, not 0"},
      {{{"use_peft", true}, {"adapter", "dora"}}, "use_peft and 'adapter' are one key (adapter)"},
      {{{"use_peft", true}, {"lora_target_modules", {"q_proj", 1}}}, "must be a string"},
      {{{"loss_type", {"sigmoid", "bco_pair"}}}, "preference has DPO's sigmoid loss"},
      {{{"assistant_only_loss", false}}, "chat learns what the assistant wrote"},
      {{{"max_prompt_length", 512}}, "what is longer than seq_len is an error"},
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
      {{{"lr_decay_style", "inverse-square-root"}, {"lr_warmup_iters", 2}},
       {{"lr_schedule", "inverse_sqrt"}}},
      // A share of the schedule's steps, not of the run's.
      {{{"lr_warmup_fraction", 0.5}, {"lr_decay_iters", 6}}, {{"warmup_steps", 3.0}}},
      {{{"lr_warmup_fraction", 0.5}}, {{"warmup_steps", 5.0}}},
      // 7.000000000000001 as a product; 2.21; 0.1.
      {{{"lr_warmup_fraction", 0.07}, {"train_iters", 100}}, {{"warmup_steps", 7.0}}},
      {{{"lr_warmup_fraction", 0.13}, {"lr_decay_iters", 17}}, {{"warmup_steps", 2.0}}},
      {{{"lr_warmup_fraction", 0.01}}, {{"warmup_steps", 1.0}}},
      {{{"lr_decay_style", "WSD"}, {"lr_wsd_decay_iters", 4}, {"lr_wsd_decay_style", "minus_sqrt"}},
       {{"lr_decay_type", "1-sqrt"}}},
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

TEST(RunKeysTest, WhatMegatronsWordsWouldMeanElsewhere) {
  struct Case {
    Json arguments;
    const char* key;
    Json value;
  };
  const Case cases[] = {
      {Json::object(), "val_fraction", 0.031},
      {{{"split", "949,50,1"}}, "val_fraction", 0.051},
      {{{"split", {90, 10}}}, "val_fraction", 0.1},
      {{{"split", "100"}}, "val_fraction", 0.0},
      {{{"val_fraction", 0.25}}, "val_fraction", 0.25},
      {{{"bf16", true}}, "dtype", "bfloat16"},
      {{{"bf16", true}}, "autocast", nullptr},
      {{{"fp16", true}}, "dtype", "float16"},
      {{{"fp16", true}}, "initial_scale", 4294967296.0},
      {{{"autocast", "bfloat16"}}, "autocast", "bfloat16"},
      {{{"autocast", "bfloat16"}, {"bf16", true}}, "autocast", "bfloat16"},
      {{{"optimizer", "sgd"}, {"adam_eps", 1e-6}, {"adam_beta1", 0.8}}, "eps", nullptr},
      {{{"adam_eps", 1e-6}}, "eps", 1e-6},
      {{{"optimizer", "adam"}, {"adam_eps", 1e-6}}, "eps", 1e-6},
      {{{"optimizer", "muon"}, {"adam_eps", 1e-4}}, "adam_eps", 1e-4},
      {{{"eval_iters", 0}}, "eval_strategy", "no"},
      {{{"eval_iters", 3}}, "eval_strategy", "steps"},
      {{{"tensorboard_dir", "t"}}, "report_to", {"tensorboard"}},
      {{{"recompute_granularity", "full"}, {"recompute_method", "uniform"}},
       "checkpoint_activations",
       true},
      {{{"recompute_granularity", "selective"}}, "checkpoint_activations", false},
      {{{"distributed_timeout_minutes", 2}}, "collective_timeout", 120.0},
      {{{"overlap_grad_reduce", true}, {"use_flash_attn", true}}, "overlap_comm", true},
      {{{"fp16", true}, {"initial_loss_scale", 1024}}, "initial_scale", 1024.0},
      {{{"fp16", true}, {"min_loss_scale", 2}}, "min_scale", 2.0},
      {{{"fp16", true}, {"loss_scale_window", 50}}, "growth_interval", 50},
      {{{"calculate_per_token_loss", true}}, "loss_average", "targets"},
      {{{"calculate_per_token_loss", false}}, "loss_average", "micro_batches"},
      {{{"no_check_for_nan_in_loss_and_grad", true}}, "on_non_finite", "continue"},
      {{{"deterministic_mode", true}}, "deterministic", true},
      {{{"exit_duration_in_mins", 3}}, "time_limit", 180.0},
      {{{"valid_data_path", "v"}}, "val_data", "v"},
      {{{"valid_data_path", {"1.0", "v"}}}, "val_data", "v"},
      {{{"data_path", "a"}}, "data", {"a"}},
      {{{"data_path", {"a", "b"}}}, "data", {"a", "b"}},
      {{{"data_path", {"0.3", "a", "0.7", "b"}}}, "data", {"a:0.3", "b:0.7"}},
      {{{"data_path", {30, "a", 70, "b"}}}, "data", {"a:30", "b:70"}},
      {{{"train_data_path", "0.3 a 0.7 b"}}, "data", {"a:0.3", "b:0.7"}},
      {{{"dataloader_type", "cyclic"}, {"data_path", "a b"}}, "data", {"a b"}},
      {{{"weight_decay_incr_style", "constant"}}, "weight_decay", 0.01},
      // Lion has betas of its own.
      {{{"optimizer", "lion"}}, "betas", {0.95, 0.98}},
      {{{"optimizer", "lion"}, {"adam_beta1", 0.9}, {"adam_beta2", 0.95}}, "betas", {0.95, 0.98}},
      {{{"optimizer", "lion"}, {"betas", {0.9, 0.99}}}, "betas", {0.9, 0.99}},
  };
  for (const Case& c : cases) {
    Json flags = {{"micro_batch_size", 4}, {"train_iters", 10}, {"lr", 1e-4}, {"save", "o"}};
    flags.update(c.arguments);
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = flags});
    ASSERT_TRUE(run.ok() && run->status().ok())
        << c.arguments << ": " << Message(run.ok() ? run->status() : run.status());
    const Json value = run->config.Get(c.key);
    if (c.value.is_number()) {
      EXPECT_DOUBLE_EQ(value.get<double>(), c.value.get<double>()) << c.arguments;
    } else {
      EXPECT_EQ(value, c.value) << c.arguments << ' ' << c.key;
    }
  }
  const std::pair<Json, const char*> refused[] = {
      {{{"lr_decay_style", "inverse-square-root"}}, "give lr_warmup_iters"},
      {{{"lr_decay_style", "inverse-square-root"}, {"lr_warmup_iters", 2}, {"lr_decay_iters", 5}},
       "lr_decay_iters is 5"},
      {{{"lr_decay_style", "WSD"}, {"lr_wsd_decay_iters", 4}}, "give linear, cosine or minus_sqrt"},
      {{{"lr_decay_style", "WSD"},
        {"lr_wsd_decay_iters", 4},
        {"lr_wsd_decay_style", "exponential"}},
       "--lr_wsd_decay_style is exponential"},
      {{{"split", "0,1"}}, "--split leaves nothing to train on"},
      {{{"valid_data_path", {"a", "b"}}}, "--valid_data_path is a blend of 2, and an evaluation"},
      {{{"data_path", {true}}}, "--data_path must be paths, or weights and paths by turns"},
      {{{"dataloader_type", "external"}}, "refused: batches are rows of the data"},
      {{{"data_args_path", "f"}}, "give the paths that the file lists as data_path"},
      {{{"num_layers", 2}}, "a model's shape is a preset's or a folder's; give config_overrides"},
      {{{"swiglu", true}}, "--swiglu is true, refused: a model's shape"},
      {{{"vocab_file", "v"}}, "give the tokenizer's folder as tokenizer_model"},
      {{{"no_load_optim", true}}, "a checkpoint keeps and restores the whole run"},
      {{{"start_weight_decay", 0.01}}, "give weight_decay"},
      {{{"weight_decay_incr_style", "linear"}}, "refused: weight decay is the same at every step"},
      {{{"optimizer", "lion"}, {"lion_beta1", 0.9}}, "give betas, two numbers"},
      {{{"reset_position_ids", true}}, "give reset_at_documents, which does both"},
      {{{"split", {1, -1}}}, "--split must be the shares"},
      {{{"global_batch_size", 8}, {"gradient_accumulation_steps", 3}},
       "but gradient_accumulation_steps is 3"},
  };
  for (const auto& [arguments, says] : refused) {
    Json flags = {{"micro_batch_size", 4}, {"train_iters", 10}, {"lr", 1e-4}, {"save", "o"}};
    flags.update(arguments);
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = flags});
    const std::string message = Message(run.ok() ? run->status() : run.status());
    EXPECT_NE(message.find(says), std::string::npos) << arguments << ": " << message;
  }
}

// A file and flags of transformers' arguments: later ones win, one by one.
TEST(RunKeysTest, FlagsBesideAFileOfArguments) {
  struct Case {
    Json file;
    Json flags;
    Json expected;
  };
  const Json stable = {{"num_stable_steps", 2}, {"num_decay_steps", 4}};
  const Case cases[] = {
      // Adam's values are Adam's, whoever dumps them.
      {{{"adam_epsilon", 1e-8}}, {{"optim", "adafactor"}}, {{"eps", nullptr}}},
      {Json::object(), {{"adam_epsilon", 1e-8}, {"optim", "adafactor"}}, {{"eps", nullptr}}},
      {Json::object(), {{"adam_epsilon", 1e-6}, {"optim", "lion_32bit"}}, {{"optimizer", "lion"}}},
      {{{"adam_epsilon", 1e-8}, {"adam_beta1", 0.8}}, {{"optim", "sgd"}}, {{"optimizer", "sgd"}}},
      {{{"adam_epsilon", 1e-6}}, {{"optim", "adamw_torch"}}, {{"eps", 1e-6}}},
      {{{"adam_beta2", 0.95}}, {{"optim", "adamw_torch"}}, {{"betas", {0.9, 0.95}}}},
      {{{"adam_beta2", 0.95}}, {{"adam_beta1", 0.8}}, {{"betas", {0.8, 0.95}}}},
      {{{"adam_beta1", 0.8}}, {{"adam_beta2", 0.95}}, {{"betas", {0.8, 0.95}}}},
      {{{"adam_beta1", 0.8}}, {{"betas", {0.7, 0.9}}}, {{"betas", {0.7, 0.9}}}},
      // A flag takes back what the file says.
      {{{"bf16", true}, {"max_steps", 3}, {"warmup_ratio", 0.5}},
       {{"bf16", "False"}, {"max_steps", -1}, {"warmup_ratio", 0}},
       {{"autocast", nullptr}, {"max_steps", nullptr}, {"warmup_steps", 0.0}}},
      {{{"adafactor", true}}, {{"adafactor", false}}, {{"optimizer", "adamw"}}},
      {{{"bf16", true}}, {{"fp16", false}}, {{"autocast", "bfloat16"}}},
      // Evaluations come as rows do, unless they have steps of their own.
      {{{"logging_steps", 2}}, {{"eval_strategy", "steps"}}, {{"eval_interval", 2.0}}},
      {Json::object(), {{"eval_strategy", "steps"}}, {{"eval_interval", 500.0}}},
      {Json::object(), {{"eval_strategy", "steps"}, {"eval_steps", 7}}, {{"eval_interval", 7.0}}},
      {Json::object(), {{"do_eval", true}, {"eval_steps", 7}}, {{"eval_interval", 0.0}}},
      {Json::object(), {{"do_eval", true}}, {{"eval_strategy", "steps"}, {"eval_interval", 0.0}}},
      {{{"lr_scheduler_type", "warmup_stable_decay"}, {"lr_scheduler_kwargs", stable}},
       {{"warmup_steps", 3}},
       {{"schedule_steps", 9}}},
      {Json::object(), {{"fp16", true}}, {{"growth_interval", 2000}, {"hysteresis", 1}}},
  };
  for (const Case& c : cases) {
    const std::string path = testing::TempDir() + "/arguments.json";
    Json file = {{"output_dir", "o"}};
    file.update(c.file);
    std::ofstream(path) << file;
    Json flags = {{"output_dir", "o"}};
    flags.update(c.flags);
    const StatusOr<ResolvedRun> run = ResolveRun({.config = path, .flags = flags});
    ASSERT_TRUE(run.ok() && run->status().ok())
        << c.file << c.flags << ": " << Message(run.ok() ? run->status() : run.status());
    for (const auto& [key, value] : c.expected.items()) {
      EXPECT_EQ(run->config.Get(key), value) << c.file << c.flags << ' ' << key;
    }
  }
  const StatusOr<ResolvedRun> share =
      ResolveRun({.flags = {{"output_dir", "o"},
                            {"warmup_ratio", 0.5},
                            {"lr_scheduler_type", "warmup_stable_decay"},
                            {"lr_scheduler_kwargs", stable}}});
  const std::string message = Message(share.ok() ? share->status() : share.status());
  EXPECT_NE(message.find("beside which warmup_steps must be a number of steps"), std::string::npos)
      << message;
}

TEST(RunKeysTest, WhatAFlagTakesBackHasAVerdict) {
  const std::string path = testing::TempDir() + "/taken_back.json";
  std::ofstream(path) << Json{{"output_dir", "o"}, {"bf16", true}};
  const StatusOr<ResolvedRun> run = ResolveRun({.config = path, .flags = {{"bf16", false}}});
  ASSERT_TRUE(run.ok() && run->status().ok());
  std::string text;
  for (const KeyVerdict& v : run->verdicts) {
    if (v.key == "bf16") text += Concat(FateName(v.fate), ": ", v.reason, "\n");
  }
  EXPECT_EQ(text, "no-effect: a flag takes it back\nno-effect: asks for what holds anyway\n");
}

TEST(RunKeysTest, WhatFlagAiAndColossalAiMean) {
  const std::pair<Json, Json> cases[] = {
      {{{"env_type", "pytorch"}, {"save_dir", "o"}, {"num_checkpoints", 1}},
       {{"num_checkpoints", 0}}},
      {{{"env_type", "pytorch"}, {"save_dir", "o"}, {"fp16", true}},
       {{"dtype", "float16"}, {"autocast", nullptr}, {"initial_scale", 4294967296.0}}},
      {{{"env_type", "pytorch"}, {"save_dir", "o"}, {"lora", true}},
       {{"lora_r", 8}, {"lora_alpha", 16.0}, {"lora_dropout", 0.05}}},
      {{{"optimizer", {{"type", "SGD"}, {"lr", 0.01}}}, {"BATCH_SIZE", 2}, {"NUM_EPOCHS", 1}},
       {{"momentum", 0.0}}},
      {{{"optimizer", {{"type", "SGD"}, {"momentum", 0.5}}}, {"BATCH_SIZE", 2}, {"NUM_EPOCHS", 1}},
       {{"momentum", 0.5}}},
  };
  for (const auto& [flags, expected] : cases) {
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = flags});
    ASSERT_TRUE(run.ok() && run->status().ok())
        << flags << ": " << Message(run.ok() ? run->status() : run.status());
    for (const auto& [key, value] : expected.items()) {
      EXPECT_EQ(run->config.Get(key), value) << flags << ' ' << key;
    }
  }
}

// Of systems whose files are not read.
TEST(RunKeysTest, OtherSystemsKeysAreRefusedWithOurs) {
  const auto refusal = [](const Json& keys) {
    return Message(TranslateRunKeys(keys, "axo.yaml").status());
  };
  EXPECT_EQ(refusal({{"base_model", "llama"}}), "axo.yaml: 'base_model' is refused: use model");
  EXPECT_EQ(refusal({{"max_iters", 5}}), "axo.yaml: 'max_iters' is refused: use max_steps");
  EXPECT_EQ(refusal({{"sample_packing", true}}),
            "axo.yaml: 'sample_packing' is true, refused: use packing");
  EXPECT_EQ(refusal({{"datasets", {{{"path", "a.json"}, {"type", "alpaca"}}}}}),
            "axo.yaml: 'datasets' is refused: give files of this machine as data, and what they "
            "hold as task (chat, preference)");
  EXPECT_EQ(refusal({{"train_on_inputs", false},
                     {"decay_lr", true},
                     {"val_set_size", 0.0},
                     {"flash_attention", true},
                     {"special_tokens", nullptr}}),
            "");
  EXPECT_EQ(refusal({{"stage", "sft"}}),
            "axo.yaml: 'stage' is \"sft\"; ZeRO's is a number, and of LLaMA-Factory's use task "
            "(chat, causal_lm, preference)");
  EXPECT_EQ(*TranslateRunKeys({{"stage", 2}}, "a").keys, Json({{"zero", 2}}));
  EXPECT_EQ(*TranslateRunKeys({{"adapter", "lora"}, {"lora_target", "all"}}, "a").keys,
            Json({{"adapter", "lora"}, {"target_modules", "all-linear"}}));
  const Json factory = {{"adapter", "lora"}, {"lora_rank", 16}};
  EXPECT_EQ(*TranslateRunKeys(factory, "a").defaults, Json({{"lora_alpha", 32.0}}));
  EXPECT_EQ(*TranslateRunKeys({{"adapter", "lora"}, {"lora_r", 16}}, "a").defaults, Json::object());
  Json with_alpha = factory;
  with_alpha["lora_alpha"] = 8;
  for (const auto& [keys, alpha] : {std::pair(factory, 32.0), {with_alpha, 8.0}}) {
    const StatusOr<ResolvedRun> run = ResolveRun({.flags = keys});
    ASSERT_TRUE(run.ok() && run->status().ok()) << keys;
    EXPECT_EQ(run->config.lora_alpha, alpha);
  }
  const StatusOr<ResolvedRun> toml = ResolveRun({.config = "llama3_8b.toml"});
  ASSERT_FALSE(toml.ok());
  EXPECT_EQ(Message(toml.status()),
            "llama3_8b.toml: is TOML, which is not read; give its values as flags, or as JSON or "
            "YAML with the names of docs/cli.md");
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
