// SPDX-License-Identifier: Apache-2.0
// What a run does when the loss or the gradients are no numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
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
      if (options.context.training && options.context.step == bad_step) {
        out.set(keys::kLoss, Mul(out.at(keys::kLoss), factor));
      }
      return out;
    };
    std::FILE* file = std::tmpfile();
    Trainer trainer(setup->config, *setup->model, setup->data, {}, std::move(parts));
    const auto result = trainer.Train({.resume = resume, .output = file});
    Outcome outcome{.status = result.status(), .step = trainer.state().step};
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
  EXPECT_NE(Message(result.status()).find("step 5: the loss is"), std::string::npos)
      << Message(result.status());
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

TEST_F(NonFiniteTest, AnomaliesAreFoundWhereTheyBegin) {
  for (const bool recomputes : {false, true}) {
    for (const int64_t zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(Concat(recomputes, zero));
      RunConfig config = Config(Concat("run_", recomputes, zero));
      config.detect_anomaly = true;
      config.checkpoint_activations = recomputes;
      config.zero = zero;
      const Status status = Guarded([&] { return Run(config, 6, kNan).status; });
      EXPECT_EQ(
          Message(status),
          "backward: the gradient of 'affine' for its input 0, float32[], is nan at element 0");
    }
  }
}

TEST_F(NonFiniteTest, LookingForAnomaliesChangesNoBit) {
  RunConfig config = Config("plain");
  config.gradient_accumulation_steps = 2;
  const auto weights = Train(config);
  config.out += "_looking";
  config.detect_anomaly = true;
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
