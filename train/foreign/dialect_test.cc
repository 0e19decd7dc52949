// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/dialect.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/options.h"
#include "train/foreign/resolve_run.h"
#include "train/foreign/run_keys.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

ResolvedRun Resolved(const RunSources& sources) {
  StatusOr<ResolvedRun> run = ResolveRun(sources);
  EXPECT_TRUE(run.ok()) << Message(run.status());
  if (!run.ok()) return {};
  EXPECT_TRUE(run->status().ok()) << run->status();
  EXPECT_TRUE(run->config.Validate().ok()) << run->config.Validate();
  return *std::move(run);
}

std::string Refusal(const RunSources& sources) {
  const StatusOr<ResolvedRun> run = ResolveRun(sources);
  return Message(run.ok() ? run->status() : run.status());
}

std::string Written(const std::string& name, const Json& json) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << json.dump();
  return path;
}

// The example lines of each system, their defaults read in its source.
TEST(DialectTest, NamesOfASystemBringItsDefaults) {
  struct Case {
    Json flags;
    const char* dialect;
    Json expected;
  };
  const Case cases[] = {
      {{{"output_dir", "o"}, {"learning_rate", 2e-5}},
       "hugging-face",
       {{"lr", 2e-5},
        {"weight_decay", 0.0},
        {"betas", {0.9, 0.999}},
        {"lr_schedule", "linear"},
        {"schedule_offset", -1},
        {"min_lr", 0.0},
        {"max_grad_norm", 1.0},
        {"epochs", 3.0},
        {"batch_size", 8},
        {"seed", 42},
        {"num_checkpoints", 0},
        {"loss_average", "trainer"},
        {"eval_strategy", "no"},
        {"join_epochs", false}}},
      {{{"env_type", "pytorch"}, {"save_dir", "o"}},
       "flagai",
       {{"optimizer", "adam"},
        {"lr", 1e-5},
        {"weight_decay", 1e-5},
        {"warmup_steps", 0.1},
        {"loss_average", "micro_batches"},
        {"schedule_counting", "flagai"},
        {"batch_size", 1},
        {"epochs", 1.0},
        {"seed", 1234}}},
      {{{"micro_batch_size", 4}, {"train_iters", 10}, {"lr", 1e-4}, {"save", "o"}},
       "megatron",
       {{"batch_size", 4},
        {"max_steps", 10},
        {"weight_decay", 0.01},
        {"lr_schedule", "linear"},
        {"seed", 1234}}},
      {{{"dialect", "colossal-ai"}, {"lr_schedule", "cosine"}, {"out", "o"}},
       "colossal-ai",
       {{"lr", 1e-3},
        {"schedule_counting", "colossal-ai"},
        {"min_lr", 0.0},
        {"lr_schedule", "cosine"}}},
      {{{"dialect", "deepspeed"}, {"out", "o"}},
       "deepspeed",
       {{"lr", 1e-3},
        {"lr_schedule", "constant"},
        {"max_grad_norm", 0.0},
        {"loss_average", "micro_batches"},
        {"batch_size", 1}}}};
  for (const Case& c : cases) {
    const ResolvedRun run = Resolved({.flags = c.flags});
    EXPECT_EQ(run.config.dialect, c.dialect) << c.flags;
    EXPECT_EQ(run.config.ToJson()["dialect"], c.dialect);
    for (const auto& [key, value] : c.expected.items()) {
      EXPECT_EQ(run.config.Get(key), value) << c.dialect << ' ' << key;
    }
    ASSERT_EQ(run.notes.size(), 1u) << c.dialect;
    EXPECT_EQ(run.notes[0], "defaults: " + FindDialect(c.dialect)->system + "'s");
  }
}

TEST(DialectTest, WhatItChangedHasAVerdict) {
  const ResolvedRun run = Resolved({.flags = {{"output_dir", "o"}}});
  std::string text;
  for (const KeyVerdict& v : run.verdicts) {
    text += Concat(v.key, " ", FateName(v.fate), " ", v.reason, "\n");
  }
  EXPECT_NE(text.find("output_dir translated out\n"), std::string::npos) << text;
  EXPECT_NE(text.find("lr default 5e-05, as Hugging Face has it\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("batch_size default"), std::string::npos) << "8 is ours as well";
  EXPECT_EQ(run.config.given.count("lr"), 0u) << "nobody gave it";
}

TEST(DialectTest, OurOwnWordsKeepOurDefaults) {
  const ResolvedRun run =
      Resolved({.flags = {{"out", "o"}, {"learning_rate", 1e-3}, {"num_train_epochs", 2}}});
  const RunConfig ours;
  EXPECT_EQ(run.config.dialect, "tessera");
  EXPECT_EQ(run.config.lr_schedule, ours.lr_schedule);
  EXPECT_EQ(run.config.weight_decay, ours.weight_decay);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_EQ(run.notes[0],
            "defaults: Tessera's, beside Hugging Face's learning_rate, num_train_epochs; --dialect "
            "hugging-face takes Hugging Face's");
  EXPECT_TRUE(Resolved({.flags = {{"out", "o"}, {"lr", 1e-3}}}).notes.empty());
  EXPECT_TRUE(
      Resolved({.flags = {{"dialect", "tessera"}, {"output_dir", "o"}, {"learning_rate", 1e-3}}})
          .notes.empty());
}

TEST(DialectTest, TwoThatDisagreeAreRefused) {
  const Json both = {{"output_dir", "o"}, {"env_type", "pytorch"}};
  EXPECT_EQ(Refusal({.flags = both}),
            "both Hugging Face's and FlagAI's names are used, whose defaults of optimizer differ "
            "(\"adamw\", \"adam\"); say --dialect hugging-face or --dialect flagai");
  Json decided = both;
  decided["dialect"] = "flagai";
  EXPECT_EQ(Resolved({.flags = decided}).config.lr, 1e-5);
  // Our own value of a key that FlagAI has as well.
  EXPECT_EQ(Resolved({.flags = {{"out", "o"}, {"env_type", "single"}}}).config.dialect, "tessera");
}

// transformers then makes the schedule; DeepSpeed clips nothing where its file does not say so.
TEST(DialectTest, ADeepSpeedFileBelongsToHuggingFace) {
  const std::string path = Written("ds.json", {{"train_micro_batch_size_per_gpu", "auto"},
                                               {"zero_optimization", {{"stage", 1}}}});
  const RunConfig run =
      Resolved({.deepspeed = path, .flags = {{"output_dir", "o"}}, .world_size = 1}).config;
  EXPECT_EQ(run.lr_schedule, "linear");
  EXPECT_EQ(run.max_grad_norm, 0);
  EXPECT_EQ(run.lr, 5e-5);
  const RunConfig own = Resolved({.deepspeed = path, .flags = {{"out", "o"}}}).config;
  EXPECT_EQ(own.lr_schedule, "constant") << "the engine's";
}

// Where transformers' Trainer would stop.
TEST(DialectTest, ADeepSpeedFileThatContradictsTheArgumentsIsNamed) {
  const std::string ds = Written("contradicts.json", {{"train_micro_batch_size_per_gpu", 2},
                                                      {"gradient_accumulation_steps", 1},
                                                      {"gradient_clipping", 0.5}});
  const Json arguments = {
      {"per_device_train_batch_size", 4}, {"gradient_accumulation_steps", 1}, {"max_grad_norm", 1}};
  Json flags = arguments;
  flags["output_dir"] = "o";
  const std::vector<std::string> of_flags = Resolved({.deepspeed = ds, .flags = flags}).notes;
  ASSERT_EQ(of_flags.size(), 3u);  // the dialect's, and two
  EXPECT_EQ(of_flags[1], ds + ": 'train_micro_batch_size_per_gpu' is 2, and "
                              "'per_device_train_batch_size' of the flags is 4, which counts");
  const std::string file = Written("arguments.json", arguments);
  const std::vector<std::string> of_file =
      Resolved({.config = file, .deepspeed = ds, .flags = {{"output_dir", "o"}}}).notes;
  ASSERT_EQ(of_file.size(), 3u);
  EXPECT_EQ(of_file[2], ds + ": 'gradient_clipping' is 0.5, which counts, and 'max_grad_norm' of " +
                            file + " is 1");
}

// FlagAI's Trainer makes a schedule and a scaler only without DeepSpeed; the batches and the rows
// of its log are its own in either case.
TEST(DialectTest, ADeepSpeedFileBesideFlagAi) {
  Json ds = {{"train_micro_batch_size_per_gpu", 2},
             {"gradient_accumulation_steps", 1},
             {"steps_per_print", 100},
             {"fp16", {{"enabled", true}}},
             {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 4e-4}}}}},
             {"zero_optimization", {{"stage", 3}}}};
  const auto run = [&](const Json& own) {
    Json keys = {{"env_type", "deepspeed"}, {"save_dir", "o"}, {"lr", 1e-4}};
    keys["deepspeed_config"] = Written("flagai_ds.json", ds);
    keys.update(own);
    return Resolved({.config = Written("flagai.json", keys)});
  };
  const RunConfig config = run({{"batch_size", 1}, {"log_interval", 10}}).config;
  EXPECT_EQ(config.lr_schedule, "constant");
  EXPECT_EQ(config.warmup_steps, 0);
  EXPECT_EQ(config.lr, 4e-4) << "DeepSpeed makes the optimizer";
  EXPECT_EQ(config.initial_scale, 65536);
  EXPECT_EQ(config.batch_size, 1);
  EXPECT_EQ(config.log_interval, 10);
  const RunConfig file_alone = run(Json::object()).config;
  EXPECT_EQ(file_alone.batch_size, 2);
  EXPECT_EQ(file_alone.log_interval, 100);
  ds["scheduler"] = {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 5}}}};
  const RunConfig scheduled = run(Json::object()).config;
  EXPECT_EQ(scheduled.warmup_steps, 5);
  EXPECT_EQ(scheduled.schedule_counting, "tessera") << "DeepSpeed's formula";
}

TEST(DialectTest, SchedulesOfTransformers) {
  const auto run = [](Json flags) {
    flags["output_dir"] = "o";
    return Resolved({.flags = flags}).config;
  };
  const RunConfig constant = run({{"lr_scheduler_type", "constant"}, {"warmup_steps", 10}});
  EXPECT_EQ(constant.warmup_steps, 0) << "constant ignores it";
  EXPECT_EQ(run({{"lr_scheduler_type", "constant_with_warmup"}, {"warmup_steps", 10}}).warmup_steps,
            10);
  const RunConfig polynomial = run({{"lr_scheduler_type", "polynomial"},
                                    {"lr_scheduler_kwargs", {{"lr_end", 1e-6}, {"power", 2}}}});
  EXPECT_EQ(polynomial.lr_schedule, "polynomial");
  EXPECT_EQ(polynomial.lr_power, 2);
  EXPECT_EQ(polynomial.min_lr, 1e-6);
  EXPECT_EQ(run({{"lr_scheduler_type", "polynomial"}}).min_lr, 1e-7);
  EXPECT_EQ(run({{"lr_scheduler_type", "cosine_with_restarts"},
                 {"lr_scheduler_kwargs", {{"num_cycles", 3}}}})
                .lr_cycles,
            3);
  const RunConfig stable = run({{"lr_scheduler_type", "warmup_stable_decay"},
                                {"lr_scheduler_kwargs", {{"num_decay_steps", 5}}}});
  EXPECT_EQ(stable.lr_decay_steps, 5);
  EXPECT_EQ(stable.lr_decay_type, "cosine");
  EXPECT_NE(Refusal({.flags = {{"output_dir", "o"},
                               {"lr_scheduler_type", "cosine"},
                               {"lr_scheduler_kwargs", {{"power", 2}}}}})
                .find("has 'power', which cosine does not"),
            std::string::npos);
}

// What one source says of a schedule and another of its rates.
TEST(DialectTest, ASchedulesSharesAreOfWhateverLrTheRunHas) {
  const auto run = [](const Json& file, Json flags) {
    flags["output_dir"] = "o";
    return Resolved({.config = Written("schedule.json", file), .flags = flags});
  };
  const Json floor = {{"lr_scheduler_type", "cosine_with_min_lr"},
                      {"lr_scheduler_kwargs", {{"min_lr_rate", 0.5}}}};
  EXPECT_EQ(run({{"learning_rate", 1e-3}}, floor).config.min_lr, 0.5e-3);
  EXPECT_EQ(run(floor, {{"learning_rate", 1e-2}}).config.min_lr, 0.5e-2);
  EXPECT_EQ(run(floor, {}).config.min_lr, 2.5e-5) << "of the dialect's lr";
  EXPECT_EQ(run(floor, {{"min_lr", 1e-6}}).config.min_lr, 1e-6);
  EXPECT_EQ(run(floor, {{"lr_scheduler_type", "linear"}}).config.min_lr, 0);
  EXPECT_EQ(run({{"lr_scheduler_type", "polynomial"}}, {}).config.min_lr, 1e-7);
  const RunConfig stable =
      run({{"lr_scheduler_type", "warmup_stable_decay"},
           {"lr_scheduler_kwargs", {{"num_decay_steps", 5}, {"min_lr_ratio", 0.25}}}},
          {{"learning_rate", 1e-2}, {"warmup_steps", 3}})
          .config;
  EXPECT_EQ(stable.min_lr, 2.5e-3);
  EXPECT_EQ(stable.warmup_min_lr, 2.5e-3) << "its warm-up begins there";
  // A warm-up that constant has not.
  EXPECT_EQ(run({{"warmup_steps", 7}}, {{"lr_scheduler_type", "constant"}}).config.warmup_steps, 0);
  const ResolvedRun constant =
      run(Json::object(), {{"lr_scheduler_type", "constant"}, {"warmup_steps", 7}});
  EXPECT_EQ(constant.config.warmup_steps, 0);
  for (const KeyVerdict& verdict : constant.verdicts) {
    if (verdict.key != "warmup_steps") continue;
    EXPECT_EQ(verdict.fate, KeyFate::kNoEffect) << FateName(verdict.fate);
  }
  EXPECT_NE(Refusal({.flags = {{"output_dir", "o"},
                               {"lr_scheduler_type", "cosine_warmup_with_min_lr"},
                               {"lr_scheduler_kwargs", {{"min_lr", 0}, {"warmup_lr_rate", 0.1}}}}})
                .find("has 'warmup_lr_rate', which is not here"),
            std::string::npos);
}

// Colossal-AI's plugins cut the batch of a step.
TEST(DialectTest, MicroBatchesCutTheBatch) {
  const auto rows = [](const Json& flags) {
    const RunConfig c = Resolved({.flags = flags}).config;
    return std::pair(c.batch_size, c.gradient_accumulation_steps);
  };
  EXPECT_EQ(rows({{"batch_size", 8}, {"num_microbatches", 4}}), std::pair(int64_t{2}, int64_t{4}));
  EXPECT_EQ(rows({{"batch_size", 8}, {"microbatch_size", 1}}), std::pair(int64_t{1}, int64_t{8}));
  EXPECT_EQ(rows({{"batch_size", 8}, {"num_microbatches", 2}, {"microbatch_size", 1}}),
            std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(rows({{"num_microbatches", 2}}), std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(Refusal({.flags = {{"batch_size", 8}, {"num_microbatches", 3}}}),
            "num_microbatches is 3, which does not divide the batch of 8 rows (batch_size)");
  EXPECT_EQ(rows({{"micro_batch_size", 2}, {"train_iters", 5}, {"global_batch_size", 8}}),
            std::pair(int64_t{2}, int64_t{4}));
  EXPECT_EQ(Refusal({.flags = {{"micro_batch_size", 3}, {"global_batch_size", 8}}}),
            "global_batch_size is 8, which is no multiple of micro_batch_size * ranks, 3 * 1");
}

TEST(DialectTest, ExpertParallelRanksHaveTheirNames) {
  const RunConfig megatron = Resolved({.flags = {{"micro_batch_size", 2},
                                                 {"train_iters", 5},
                                                 {"tensor_model_parallel_size", 2},
                                                 {"expert_model_parallel_size", 4},
                                                 {"expert_tensor_parallel_size", 1},
                                                 {"global_batch_size", 16}},
                                       .world_size = 8})
                                 .config;
  EXPECT_EQ(megatron.tp, 2);
  EXPECT_EQ(megatron.ep, 4);
  EXPECT_EQ(megatron.gradient_accumulation_steps, 2) << "ep ranks have rows of their own";
  EXPECT_EQ(Refusal({.flags = {{"micro_batch_size", 2}, {"expert_tensor_parallel_size", 2}}}),
            "--expert_tensor_parallel_size is 2, refused: tp splits experts like all layers");
  EXPECT_EQ(Resolved({.flags = {{"ep_size", 2}}, .world_size = 2}).config.ep, 2);
  EXPECT_EQ(
      Resolved({.deepspeed = Written(
                    "experts.json", {{"expert_parallel", {{"enabled", true}, {"autoep_size", 2}}}}),
                .world_size = 2})
          .config.ep,
      2);
}

TEST(DialectTest, ColossalAisFilesHaveSections) {
  const std::string path = "train/foreign/testdata/colossalai/gpt2_pp1d.json";
  const ResolvedRun run = Resolved({.config = path, .world_size = 4});
  EXPECT_EQ(run.config.dialect, "colossal-ai");
  EXPECT_EQ(run.config.pp, 2);
  EXPECT_EQ(run.config.tp, 2);
  EXPECT_EQ(run.config.dtype, "float16");
  EXPECT_EQ(run.config.optimizer, "adam");
  EXPECT_EQ(run.config.batch_size, 2);
  EXPECT_EQ(run.config.gradient_accumulation_steps, 4);
  EXPECT_EQ(run.config.seq_len, 1024);
  EXPECT_EQ(run.config.epochs, 60);
  const auto refusal = [](const Json& keys) { return Refusal({.flags = keys}); };
  EXPECT_EQ(refusal({{"parallel", {{"tensor", {{"mode", "2.5d"}}}}}}),
            "--parallel.tensor.mode is \"2.5d\", refused: layers are cut along one dimension");
  EXPECT_EQ(refusal({{"hooks", {{"SaveCheckpointHook", {{"interval", 2}}}}}}),
            "--hooks.SaveCheckpointHook has the interval 2; checkpoints come after every epoch, or "
            "with save_by_iter by steps");
  EXPECT_EQ(refusal({{"hooks", {{"TensorboardHook", {{"folder", "x"}}}}}}),
            "--hooks.TensorboardHook has 'folder', which is not here");
  EXPECT_EQ(refusal({{"fp16", Json::object()}}), "--fp16 must have a mode");
  EXPECT_NE(refusal({{"zero", {{"model_config", {{"shard", 1}}}}}}).find("unknown key"),
            std::string::npos);
  EXPECT_EQ(refusal({{"model", {{"type", "gpt3"}}}}).find("--model.type is \"gpt3\"; it may be"),
            0u);
  // A section that means something by being there has a verdict of its own.
  const ResolvedRun sharded = Resolved({.flags = {{"zero", Json::object()}}});
  EXPECT_EQ(sharded.config.zero, 3);
  EXPECT_EQ(sharded.config.dtype, "float16");
  ASSERT_EQ(sharded.verdicts.size(), 1u);
  EXPECT_EQ(sharded.verdicts[0].key, "zero");
  EXPECT_EQ(sharded.verdicts[0].reason, "zero, dtype");
  EXPECT_EQ(Resolved({.flags = {{"zero", Json::object()}, {"dtype", "bfloat16"}}}).config.dtype,
            "bfloat16");
  // A name that both have is ours where it is no section.
  EXPECT_EQ(Resolved({.flags = {{"zero", 2}, {"optimizer", "adamw"}}}).config.zero, 2);
  EXPECT_EQ(Refusal({.config = "gpt2_configs/gpt2_zero3.py"}),
            "gpt2_configs/gpt2_zero3.py: is a Python file, which is not run; give its values as "
            "flags, or as JSON or YAML with the same names (docs/migration.md)");
}

// DeepSpeed's three numbers, whatever gives two of them.
TEST(DialectTest, ABatchOfDeepSpeedIsSolvedWithTheFlags) {
  const auto batch = [](const Json& ds, const Json& flags, int ranks = 1) {
    const RunConfig c =
        Resolved({.deepspeed = Written("batch.json", ds), .flags = flags, .world_size = ranks})
            .config;
    return std::pair(c.batch_size, c.gradient_accumulation_steps);
  };
  const auto expect = [](int64_t micro, int64_t steps) { return std::pair(micro, steps); };
  const Json automatic = {{"train_batch_size", 8},
                          {"train_micro_batch_size_per_gpu", "auto"},
                          {"gradient_accumulation_steps", "auto"}};
  EXPECT_EQ(batch({{"train_batch_size", 8}}, {{"gradient_accumulation_steps", 2}}), expect(4, 2));
  EXPECT_EQ(batch({{"train_batch_size", 8}}, {}), expect(8, 1));
  EXPECT_EQ(batch({{"train_batch_size", 8}}, {}, 2), expect(4, 1));
  EXPECT_EQ(batch(automatic, {{"per_device_train_batch_size", 2}}), expect(2, 4));
  EXPECT_EQ(batch(automatic, {{"batch_size", 2}, {"gradient_accumulation_steps", 2}}, 2),
            expect(2, 2));
  const auto refused = [](const Json& ds, const Json& flags) {
    return Refusal({.deepspeed = Written("batch.json", ds), .flags = flags});
  };
  EXPECT_NE(refused({{"train_batch_size", 8},
                     {"train_micro_batch_size_per_gpu", 4},
                     {"gradient_accumulation_steps", "auto"}},
                    {{"gradient_accumulation_steps", 4}})
                .find("is 8, but train_micro_batch_size_per_gpu * gradient_accumulation_steps * "
                      "ranks is 4 * 4 * 1"),
            std::string::npos);
  EXPECT_NE(refused({{"train_batch_size", 8},
                     {"train_micro_batch_size_per_gpu", 2},
                     {"gradient_accumulation_steps", 4}},
                    {{"batch_size", 4}})
                .find("is 8, but"),
            std::string::npos);
}

// An engine's keys are applied one by one, so that nothing would apply a dialect's.
TEST(DialectTest, KeysOfAnEngineHaveNone) {
  RunConfig config;
  EXPECT_EQ(
      Message(ApplyRunConfigJson({{"dialect", "flagai"}}, "booster", &config)),
      "booster: 'dialect' is \"flagai\", which a whole run takes; give the keys that `tessera "
      "explain --dialect` lists");
  EXPECT_TRUE(ApplyRunConfigJson({{"dialect", "tessera"}}, "booster", &config).ok());
}

// As argparse, Python and YAML write values.
TEST(DialectTest, ValuesAsOthersWriteThem) {
  for (const char* yes : {"1", "true", "yes", "on", "True", "TRUE", "t", "Y"}) {
    EXPECT_EQ(Resolved({.flags = {{"out", "o"}, {"bf16", yes}}}).config.autocast, "bfloat16")
        << yes;
    EXPECT_TRUE(Resolved({.flags = {{"out", "o"}, {"drop_last", yes}}}).config.drop_last) << yes;
  }
  for (const char* no : {"0", "false", "no", "off", "False", "FALSE", "f", "N"}) {
    EXPECT_EQ(Resolved({.flags = {{"out", "o"}, {"bf16", no}}}).config.autocast, "") << no;
    EXPECT_FALSE(
        Resolved({.flags = {{"out", "o"}, {"dataloader_drop_last", no}}}).config.drop_last);
  }
  EXPECT_NE(Refusal({.flags = {{"bf16", "maybe"}}}).find("must be true or false"),
            std::string::npos);
  const std::pair<const char*, double> numbers[] = {
      {".001", 1e-3}, {"1.e-3", 1e-3}, {"+1e-3", 1e-3}, {"1e-3", 1e-3}, {"2", 2}};
  for (const auto& [text, value] : numbers) {
    EXPECT_EQ(Resolved({.flags = {{"out", "o"}, {"learning_rate", text}}}).config.lr, value)
        << text;
  }
  EXPECT_EQ(Resolved({.flags = {{"output_dir", "o"}, {"save_total_limit", "None"}}})
                .config.num_checkpoints,
            0)
      << "none is the default there: all are kept";
  EXPECT_EQ(Option::FromText(Option::Kind::kNumbers, "0.9 .95"), Json({0.9, 0.95}));
  EXPECT_EQ(Option::FromText(Option::Kind::kNumbers, "0.9, .95"), Json({0.9, 0.95}));
  EXPECT_EQ(Option::FromText(Option::Kind::kNumbers, "0.9,"), "0.9,");
}

}  // namespace
}  // namespace tessera::train
