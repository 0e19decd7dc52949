// SPDX-License-Identifier: Apache-2.0
// Runs that are asked to stop, or end without being asked, while they evaluate: the checkpoint of
// the step is on the disk, nothing is written of half an evaluation, and what resumes is the
// uninterrupted run.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/model_keys.h"
#include "train/ranks/stop_signal.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

class InterruptionTest : public SmallRuns {
 protected:
  RunConfig Usual(const std::string& out) const {
    RunConfig config = Config(out);
    config.max_steps = 6;
    config.eval_interval = 2;
    config.save_interval = 3;
    config.log_interval = 2;
    config.num_checkpoints = 9;
    return config;
  }
  // Calls `disturb` with the number, from 1, of each batch that is evaluated.
  static TrainerParts Disturbed(const models::Model& model,
                                const std::function<void(int64_t)>& disturb, int64_t* batches) {
    TrainerParts parts;
    parts.prediction_step.run = [&model, disturb, batches](const models::Bundle& batch,
                                                           const models::RunOptions& options) {
      disturb(++*batches);
      return model.Run(batch, options);
    };
    return parts;
  }
  struct Outcome {
    TrainResult result;
    int64_t batches = 0;
    std::map<std::string, std::vector<float>> weights = {};
  };
  static Outcome Run(const RunConfig& config, const std::function<void(int64_t)>& disturb,
                     bool resume = false) {
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    Outcome outcome;
    Trainer trainer(setup->config, *setup->model, setup->data, {},
                    Disturbed(*setup->model, disturb, &outcome.batches));
    const auto result = trainer.Train({.resume = resume, .output = nullptr});
    EXPECT_TRUE(result.ok()) << Message(result.status());
    if (result.ok()) outcome.result = *result;
    for (const auto& [name, tensor] : setup->model->StateDict()) {
      outcome.weights[name] = tensor.ToVector<float>();
    }
    return outcome;
  }
  static void Nothing(int64_t) {}
};

TEST_F(InterruptionTest, ASignalInAnEvaluationIsHeardBetweenBatches) {
  for (const bool async : {false, true}) {
    RunConfig whole = Usual(Concat("whole", async));
    whole.async_save = async;
    whole.load_best_model_at_end = true;
    whole.early_stopping_patience = 5;
    const Outcome expected = Run(whole, Nothing);
    const int64_t batches = expected.batches / 3;  // of an evaluation
    ASSERT_GT(batches, 3);
    // In the evaluations after step 2, where nothing is due to be saved, and after the last.
    for (const int64_t at : {int64_t{2}, 2 * batches + 3}) {
      for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
        SCOPED_TRACE(Concat(async, ' ', at, ' ', signal));
        RunConfig config = whole;
        config.out = Config(Concat("run", async, "_", at, "_", signal)).out;
        const Outcome stopped = Run(config, [&](int64_t batch) {
          if (batch == at) std::raise(signal);
        });
        EXPECT_EQ(stopped.result.stopped_by, StopSignals::Name(signal));
        EXPECT_EQ(stopped.batches, at);
        const int64_t step = at < batches ? 2 : 6;
        EXPECT_EQ(stopped.result.state.step, step);
        EXPECT_EQ(dist::ListCheckpoints(config.out).back(), step);
        for (const auto& row : Rows(config)) {
          EXPECT_FALSE(row["step"] == step && row.contains("val_loss")) << row;
        }
        const Outcome resumed = Run(config, Nothing, /*resume=*/true);
        EXPECT_EQ(resumed.result.stopped_by, "");
        EXPECT_EQ(resumed.weights, expected.weights);
        EXPECT_EQ(Losses(config), Losses(whole));
        const Outcome again = Run(config, Nothing, /*resume=*/true);
        EXPECT_EQ(again.batches, 0);
        EXPECT_EQ(Losses(config), Losses(whole));
      }
    }
  }
}

TEST_F(InterruptionTest, ATimeLimitIsLookedAtBetweenBatches) {
  RunConfig config = Usual("run");
  config.time_limit = 0.5;
  const Outcome stopped =
      Run(config, [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(300)); });
  EXPECT_EQ(stopped.result.stopped_by, "the time limit");
  EXPECT_EQ(stopped.result.state.step, 2);
  EXPECT_LE(stopped.batches, 3);
}

// A checkpoint is on the disk before the evaluation of its step begins, and says what is due.
TEST_F(InterruptionTest, AnEndInAnEvaluationLosesNoStep) {
  const RunConfig whole = Usual("whole");
  const Outcome expected = Run(whole, Nothing);
  for (const bool last : {false, true}) {
    RunConfig config = Usual(Concat("run", last));
    if (!last) config.save_interval = 2;
    const int64_t at = last ? expected.batches : 2;
    auto setup = PrepareRun(config);
    ASSERT_TRUE(setup.ok());
    int64_t batches = 0;
    {
      Trainer trainer(setup->config, *setup->model, setup->data, {},
                      Disturbed(
                          *setup->model,
                          [&](int64_t batch) {
                            if (batch == at) throw std::runtime_error("the power fails");
                          },
                          &batches));
      EXPECT_THROW(trainer.Train({.output = nullptr}).status().IgnoreError(), std::runtime_error);
    }
    EXPECT_EQ(dist::ListCheckpoints(config.out).back(), last ? 6 : 2);
    EXPECT_EQ(Run(config, Nothing, /*resume=*/true).weights, expected.weights);
    EXPECT_EQ(Losses(config), Losses(whole));
  }
}

// All ranks stop after the same batch, whichever of them is asked.
TEST_F(InterruptionTest, RanksStopTogether) {
  for (const bool zero3 : {false, true}) {
    RunConfig config = Usual(Concat("run", zero3));
    config.zero = zero3 ? 3 : 0;
    RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      ASSERT_TRUE(mesh.ok());
      auto setup = PrepareRun(config, *mesh);
      ASSERT_TRUE(setup.ok());
      int64_t batches = 0;
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh,
                      Disturbed(
                          *setup->model,
                          [&](int64_t batch) {
                            if (batch == 2 && world->rank() == 1) std::raise(SIGTERM);
                          },
                          &batches));
      const auto result = trainer.Train({.output = nullptr});
      ASSERT_TRUE(result.ok()) << Message(result.status());
      EXPECT_EQ(result->stopped_by, "SIGTERM");
      EXPECT_EQ(result->state.step, 2);
      EXPECT_LE(batches, 3);
    });
    EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>{2});
  }
}

}  // namespace
}  // namespace tessera::train
