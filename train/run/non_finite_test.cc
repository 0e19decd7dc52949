// SPDX-License-Identifier: Apache-2.0
// What a run does when the loss or the gradients are no numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/store/parameter_shard.h"
#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
#include "optim/schedule.h"
#include "train/ranks/run_on_ranks.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

class NonFiniteTest : public SmallRuns {
 protected:
  struct Outcome {
    Status status;
    int64_t step = 0;
    bool weights_are_finite = true;
    std::string output = {};
  };

  // A run whose loss at step `bad_step` is multiplied by `factor`.
  Outcome Run(const RunConfig& config, uint64_t bad_step, double factor, bool resume = false) {
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    if (!setup.ok()) return {};
    const models::Model& model = *setup->model;
    TrainerParts parts;
    parts.step.forward.run = [&, bad_step, factor](const models::Bundle& batch,
                                                   const models::RunOptions& options) {
      models::Bundle out = model.Run(batch, options);
      if (options.context.training && options.context.step == bad_step &&
          options.context.micro_batch >= bad_micro_batch_) {
        out.set(keys::kLoss, Mul(out.at(keys::kLoss), factor));
      }
      return out;
    };
    std::FILE* file = std::tmpfile();
    Trainer trainer(setup->config, *setup->model, setup->data, {}, std::move(parts));
    const auto result =
        trainer.Train({.resume = resume, .output = file, .tokenizer = setup->tokenizer.get()});
    Outcome outcome{.status = result.status(), .step = trainer.state().step};
    std::vector<Tensor> parameters;
    for (const nn::Parameter* p : setup->model->Parameters()) parameters.push_back(p->tensor);
    const dist::GatheredScope gathered(parameters);
    for (const auto& [name, tensor] : setup->model->StateDict()) {
      for (const float value : tensor.ToVector<float>()) {
        outcome.weights_are_finite &= std::isfinite(value);
      }
    }
    outcome.output.resize(static_cast<size_t>(std::ftell(file)));
    std::rewind(file);
    EXPECT_EQ(std::fread(outcome.output.data(), 1, outcome.output.size(), file),
              outcome.output.size());
    std::fclose(file);
    return outcome;
  }

  uint64_t bad_micro_batch_ = 0;  // and those behind it
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
};

TEST_F(NonFiniteTest, ARunStopsAndKeepsItsLastGoodCheckpoint) {
  for (const bool async : {false, true}) {
    RunConfig config = Config(async ? "async" : "plain");
    config.save_interval = 2;
    config.num_checkpoints = 1;
    config.async_save = async;
    const Outcome outcome = Run(config, 6, kNan);
    EXPECT_EQ(outcome.step, 6);
    const std::string message = Message(outcome.status);
    EXPECT_NE(message.find("step 6: the loss is nan"), std::string::npos) << message;
    EXPECT_NE(message.find("the newest checkpoint is " + dist::CheckpointPath(config.out, 4)),
              std::string::npos)
        << message;
    EXPECT_EQ(dist::ListCheckpoints(config.out).back(), 4);
    EXPECT_FALSE(PathExists(JoinPath(config.out, "model")));
    // Without what went wrong, the run continues from there.
    EXPECT_TRUE(Run(config, 0, 1, /*resume=*/true).status.ok());
    EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>{8});
  }
}

// The weights behind a checkpoint are known to be good once a step has used them.
TEST_F(NonFiniteTest, ABadCheckpointPushesNoGoodOneOut) {
  RunConfig config = Config("run");
  config.save_interval = 1;
  config.num_checkpoints = 1;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok());
  TrainerParts parts;
  parts.learning_rate.run = [](int64_t step, int64_t) { return step == 4 ? 1e30 : 1e-3; };
  Trainer trainer(setup->config, *setup->model, setup->data, {}, std::move(parts));
  const auto result = trainer.Train({.output = nullptr});
  const std::string message = Message(result.status());
  EXPECT_NE(message.find("step 5: the loss is"), std::string::npos) << message;
  EXPECT_NE(message.find(Concat("the newest checkpoint that a step has shown to be sound is ",
                                dist::CheckpointPath(config.out, 3), "; ",
                                dist::CheckpointPath(config.out, 4), " is not known to be")),
            std::string::npos)
      << message;
  EXPECT_EQ(dist::ListCheckpoints(config.out), (std::vector<int64_t>{3, 4}));
}

// After the last update no step is left that would show it.
TEST_F(NonFiniteTest, TheLastUpdateIsJudgedByItsWeights) {
  RunConfig config = Config("run");
  config.max_steps = 1;
  config.val_fraction = 0;
  config.weight_decay = 3;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok());
  TrainerParts parts;
  parts.learning_rate.run = [](int64_t, int64_t) { return std::numeric_limits<float>::max(); };
  Trainer trainer(setup->config, *setup->model, setup->data, {}, std::move(parts));
  const auto result = trainer.Train({.output = nullptr});
  EXPECT_NE(Message(result.status()).find("after step 1: '"), std::string::npos)
      << Message(result.status());
  EXPECT_TRUE(dist::ListCheckpoints(config.out).empty());
}

TEST_F(NonFiniteTest, SkippingLeavesTheUpdateOut) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const int64_t zero : {0, 1}) {
      SCOPED_TRACE(Concat(dtype, zero));
      RunConfig config = Config(Concat("run_", dtype, zero));
      config.dtype = dtype;
      config.zero = zero;
      config.on_non_finite = "skip";
      const Outcome outcome = Run(config, 6, kNan);
      EXPECT_TRUE(outcome.status.ok()) << Message(outcome.status);
      EXPECT_EQ(outcome.step, 8);
      EXPECT_TRUE(outcome.weights_are_finite);
      EXPECT_NE(outcome.output.find("warning: step 6: the loss is nan"), std::string::npos);
    }
  }
}

TEST_F(NonFiniteTest, SkippingChangesNoBitOfAGoodRun) {
  RunConfig config = Config("plain");
  const auto weights = Train(config);
  config.out += "_skip";
  config.on_non_finite = "skip";
  EXPECT_EQ(Train(config), weights);
}

TEST_F(NonFiniteTest, AnOverflowThatLossScalingSkipsIsNone) {
  RunConfig config = Config("run");
  config.dtype = "float16";
  const Outcome outcome = Run(config, 3, 1e30);  // the loss is finite, its scaled gradient is not
  EXPECT_TRUE(outcome.status.ok()) << Message(outcome.status);
  EXPECT_TRUE(outcome.weights_are_finite);
}

// The schedule of the Trainer, of DeepSpeed and of Megatron-LM waits for an update that is left
// out, FlagAI's does not. A checkpoint keeps the count.
TEST_F(NonFiniteTest, TheScheduleWaitsForUpdatesThatOverflowsCost) {
  for (const char* counting : {"tessera", "flagai"}) {
    RunConfig config = Config(counting);
    config.dtype = "float16";
    config.initial_scale = 1024;
    config.hysteresis = 1;
    config.lr_schedule = "linear";
    config.min_lr = 0;
    config.warmup_steps = 2;
    config.schedule_counting = counting;
    config.log_interval = 1;
    config.save_interval = 4;
    config.val_fraction = 0;
    const auto schedule = optim::MakeSchedule(config.schedule_of(8));
    ASSERT_TRUE(schedule.ok()) << Message(schedule.status());
    ASSERT_TRUE(Run(config, 3, 1e30).status.ok());
    ASSERT_TRUE(RemoveAll(dist::CheckpointPath(config.out, 8)).ok());
    ASSERT_TRUE(Run(config, 0, 1, /*resume=*/true).status.ok());
    const auto rows = Rows(config);
    ASSERT_EQ(rows.size(), 8u);
    for (int64_t step = 1; step <= 8; ++step) {
      const auto& row = rows[static_cast<size_t>(step - 1)];
      const bool waits = step > 3 && counting == std::string("tessera");
      EXPECT_EQ(row["skipped_steps"], step >= 3 ? 1 : 0) << step;
      EXPECT_DOUBLE_EQ(row["lr"].get<double>(), schedule->At(waits ? step - 1 : step))
          << counting << ' ' << step;
    }
  }
}

// Loss scaling that can never come to fit ends the run; one that looks for its height does not.
TEST_F(NonFiniteTest, OverflowsWithoutEndAreAnError) {
  struct Case {
    const char* name;
    std::map<std::string, double> scaling;
    bool ends;
  };
  for (const Case& c : {Case{"fixed", {{"loss_scale", 0x1p100}}, true},
                        Case{"lowest", {{"initial_scale", 0x1p100}, {"min_scale", 0x1p100}}, true},
                        Case{"usual", {{"initial_scale", 0x1p32}}, false}}) {
    RunConfig config = Config(c.name);
    config.dtype = "float16";
    config.max_steps = 30;
    config.log_interval = 10;
    config.val_fraction = 0;
    for (const auto& [key, value] : c.scaling) {
      if (key == "loss_scale") config.loss_scale = value;
      if (key == "initial_scale") config.initial_scale = value;
      if (key == "min_scale") config.min_scale = config.max_scale = value;
    }
    const Outcome outcome = Run(config, 0, 1);
    EXPECT_EQ(outcome.status.ok(), !c.ends) << c.name << Message(outcome.status);
    EXPECT_EQ(outcome.step, c.ends ? 20 : 30) << c.name;
    if (c.ends) {
      EXPECT_NE(Message(outcome.status)
                    .find("step 20: the gradients have overflowed at 20 steps "
                          "in a row"),
                std::string::npos)
          << Message(outcome.status);
    }
    const auto rows = Rows(config);
    ASSERT_FALSE(rows.empty()) << c.name;
    EXPECT_EQ(rows[0]["skipped_steps"], c.ends ? 10 : rows[0]["skipped_steps"].get<int>());
    EXPECT_GT(rows[0]["skipped_steps"], 0) << c.name;
    EXPECT_TRUE(rows[0]["loss_scale"].is_number());
    config.out += "_continued";
    config.on_non_finite = "continue";
    config.max_steps = 22;
    const Outcome continued = Run(config, 0, 1);
    EXPECT_TRUE(continued.status.ok()) << Message(continued.status);
    EXPECT_EQ(continued.output.find("warning: all 22 updates were skipped") != std::string::npos,
              c.ends)
        << continued.output;
  }
}

// Looked for from the start, or when the step is taken again.
TEST_F(NonFiniteTest, TheFirstBadNumberIsNamed) {
  for (const bool checks : {false, true}) {
    for (const bool recomputes : {false, true}) {
      for (const int64_t zero : {0, 1, 2, 3}) {
        SCOPED_TRACE(Concat(checks, recomputes, zero));
        RunConfig config = Config(Concat("run_", checks, recomputes, zero));
        config.check_finite = checks;
        config.checkpoint_activations = recomputes;
        config.zero = zero;
        config.gradient_accumulation_steps = 4;
        bad_micro_batch_ = 2;
        const Outcome outcome = Run(config, 6, kNan);
        const std::string message = Message(outcome.status);
        EXPECT_EQ(
            message.find("step 6: the loss is nan, the norm of the gradients nan; it begins in "
                         "the forward pass of micro-batch 2 (samples "),
            0u)
            << message;
        EXPECT_NE(message.find("): result 0 of 'affine', float32[], is nan at element 0; input 0, "
                               "float32[], is finite (at most "),
                  std::string::npos)
            << message;
        EXPECT_TRUE(outcome.weights_are_finite);  // the update was left out
        EXPECT_NE(outcome.output.find(", number 88 of all that were drawn, begins \""),
                  std::string::npos)
            << outcome.output;
        const auto bad = nlohmann::json::parse(*ReadFile(JoinPath(config.out, "bad_step.json")));
        EXPECT_EQ(bad["step"], 6);
        EXPECT_EQ(bad["micro_batch"], 2);
        EXPECT_EQ(bad["pass"], "forward");
        EXPECT_EQ(bad["operation"], "affine");
        EXPECT_EQ(bad["numbers"]["value"], "nan");
        ASSERT_EQ(bad["samples"].size(), 4u);
        for (int i = 0; i < 4; ++i) {
          EXPECT_EQ(bad["samples"][i]["position"], 5 * 16 + 2 * 4 + i);
          EXPECT_NE(bad["samples"][i]["text"].get<std::string>().find("o"), std::string::npos);
        }
      }
    }
  }
}

// Without clipping some layouts update as gradients come: the weights of before are gone.
TEST_F(NonFiniteTest, WithoutClippingTheOperationIsNamedWhereItIsLookedFor) {
  for (const bool checks : {false, true}) {
    RunConfig config = Config(Concat("run_", checks));
    config.max_grad_norm = 0;
    config.check_finite = checks;
    const Outcome outcome = Run(config, 6, kNan);
    const std::string message = Message(outcome.status);
    EXPECT_EQ(
        outcome.output.find("warning: the step cannot be replayed: its update has been made") !=
            std::string::npos,
        checks)
        << outcome.output;
    EXPECT_NE(
        message.find(checks ? "result 0 of 'affine'" : "check_finite would name the operation"),
        std::string::npos)
        << message;
  }
}

TEST_F(NonFiniteTest, ASpikeOfTheLossIsToldWithItsSamples) {
  for (const char* action : {"stop", "continue"}) {
    SCOPED_TRACE(action);
    RunConfig config = Config(Concat("run_", action));
    config.max_steps = 14;
    config.save_interval = 5;
    config.gradient_accumulation_steps = 2;
    config.spike_factor = 3;
    config.on_non_finite = action;
    bad_micro_batch_ = 1;
    const Outcome outcome = Run(config, 12, 10);
    const bool stops = config.on_non_finite == "stop";
    EXPECT_EQ(outcome.step, stops ? 12 : 14);
    const std::string told = stops ? Message(outcome.status) : outcome.output;
    for (const std::string& part :
         {std::string("step 12: the loss is "), std::string(", more than 3 times the mean of the "),
          std::string(", and micro-batch 1 (samples "), std::string("has the greatest loss, ")}) {
      EXPECT_NE(told.find(part), std::string::npos) << part << "\n" << told;
    }
    EXPECT_NE(outcome.output.find("warning: sample "), std::string::npos) << outcome.output;
    if (!stops) continue;
    EXPECT_NE(told.find("the newest checkpoint is " + dist::CheckpointPath(config.out, 10)),
              std::string::npos)
        << told;
    // A resumed run knows what was usual.
    bad_micro_batch_ = 0;
    EXPECT_EQ(Run(config, 12, 10, /*resume=*/true).step, 12);
    EXPECT_TRUE(Run(config, 0, 1, /*resume=*/true).status.ok());
  }
}

// Ranks that share the tokens of rows each know a part of a micro-batch's loss.
TEST_F(NonFiniteTest, ASpikeIsThatOfItsMicroBatchWhereRanksShareRows) {
  RunConfig config = Config("run");
  config.max_steps = 14;
  config.dropout = 0;
  config.val_fraction = 0;
  config.batch_size = 2;
  config.spike_factor = 3;
  config.cp = 2;
  RunRanks(4, [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(config, world);
    ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
    const auto setup = PrepareRun(config, *mesh);
    ASSERT_TRUE(setup.ok()) << Message(setup.status());
    TrainerParts parts;
    parts.learning_rate.run = [](int64_t step, int64_t) { return step == 11 ? 0.5 : 1e-3; };
    Trainer trainer(setup->config, *setup->model, setup->data, *mesh, std::move(parts));
    const std::string told = Message(trainer.Train({.output = nullptr}).status());
    const auto number_after = [&](const std::string& text) {
      const size_t at = told.find(text);
      EXPECT_NE(at, std::string::npos) << told;
      return at == std::string::npos ? 0 : std::strtod(told.c_str() + at + text.size(), nullptr);
    };
    // Of two micro-batches whose mean is the step's.
    const double loss = number_after("step 12: the loss is ");
    const double greatest = number_after("has the greatest loss, ");
    EXPECT_GE(greatest, loss) << told;
    EXPECT_LT(greatest, 1.5 * loss) << told;
  });
}

TEST_F(NonFiniteTest, LookingForAnomaliesChangesNoBit) {
  RunConfig config = Config("plain");
  config.gradient_accumulation_steps = 2;
  const auto weights = Train(config);
  config.out += "_looking";
  config.check_finite = true;
  EXPECT_EQ(Train(config), weights);
}

TEST_F(NonFiniteTest, WhatGoesOnCanBeResumed) {
  RunConfig config = Config("run");
  config.on_non_finite = "continue";
  config.save_interval = 2;
  config.num_checkpoints = 1;
  config.log_interval = 5;
  config.val_fraction = 0;
  config.max_steps = 6;
  const Outcome outcome = Run(config, 3, kNan);
  EXPECT_TRUE(outcome.status.ok()) << Message(outcome.status);
  EXPECT_FALSE(outcome.weights_are_finite);
  // The newest, and the last that was good.
  EXPECT_EQ(dist::ListCheckpoints(config.out), (std::vector<int64_t>{2, 6}));
  config.max_steps = 7;
  EXPECT_TRUE(Run(config, 0, 1, /*resume=*/true).status.ok());
}

}  // namespace
}  // namespace tessera::train
