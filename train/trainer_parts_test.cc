// Every part of a run that a program may replace, seen to be used in place of the trainer's own.
#include "train/trainer_parts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "core/thread_communicator.h"
#include "data/dataset/sampler.h"
#include "models/model_keys.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/elementwise.h"
#include "optim/sgd/sgd.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

class TrainerPartsTest : public SmallRuns {
 protected:
  // Trains on `ranks` ranks as threads with these parts; what goes wrong, in words.
  static std::string Run(const RunConfig& config, int ranks,
                         const std::function<TrainerParts(RunSetup&)>& parts_of) {
    std::string failure;
    std::mutex mutex;
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      EXPECT_TRUE(mesh.ok()) << Message(mesh.status());
      auto setup = PrepareRun(config, *mesh);
      EXPECT_TRUE(setup.ok()) << Message(setup.status());
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh, parts_of(*setup));
      try {
        const auto result = trainer.Train({.output = nullptr});
        EXPECT_TRUE(result.ok()) << Message(result.status());
      } catch (const Error& error) {
        const std::lock_guard<std::mutex> lock(mutex);
        failure = error.what();
      }
    });
    return failure;
  }
  static std::string Run(const RunConfig& config, const TrainerParts& parts) {
    return Run(config, 1, [&](RunSetup&) { return parts; });
  }
  static nlohmann::json LastOf(const RunConfig& config, const char* key) {
    nlohmann::json found;
    for (const nlohmann::json& row : Rows(config)) {
      if (row.contains(key)) found = row[key];
    }
    return found;
  }
};

TEST_F(TrainerPartsTest, ThoseThatDoWhatTheTrainerDoesChangeNoBit) {
  RunConfig plain = Config("plain");
  plain.gradient_accumulation_steps = 2;
  plain.lr_schedule = "constant";
  Train(plain);
  RunConfig config = plain;
  config.out += "_in_parts";
  std::atomic<int> batches = 0;
  int passes = 0;
  int steps = 0;
  int rates = 0;
  EXPECT_EQ(Run(config, 1,
                [&](RunSetup& setup) {
                  TrainerParts parts;
                  parts.train_batch.run = [&](const data::BatchPlace& place) {
                    ++batches;
                    const data::Sampler sampler({.num_samples = setup.data.train->size(),
                                                 .batch_size = config.batch_size,
                                                 .micro_batches = 2,
                                                 .seed = static_cast<uint64_t>(config.seed)});
                    return setup.data.train->MakeBatch(sampler.Rows(place));
                  };
                  parts.step.forward.run = [&](const models::Bundle& batch,
                                               const models::RunOptions& options) {
                    ++passes;
                    return setup.model->Run(batch, options);
                  };
                  parts.step.training_step.run = [&](const models::Bundle& batch,
                                                     const models::RunOptions& options,
                                                     const StepParts::Backward& backward) {
                    ++steps;
                    const Tensor loss = setup.model->Run(batch, options).at(keys::kLoss);
                    backward(loss);
                    return loss.Detach();
                  };
                  parts.learning_rate.run = [&](int64_t step, int64_t total_steps) {
                    EXPECT_EQ(step, ++rates);
                    EXPECT_EQ(total_steps, 8);
                    return setup.config.lr;
                  };
                  parts.validation_batches.run = [&] {
                    return BatchesOf(*setup.data.validation, config.batch_size,
                                     config.eval_batches);
                  };
                  return parts;
                }),
            "");
  EXPECT_EQ(Losses(config), Losses(plain));
  EXPECT_EQ(steps, 16);
  EXPECT_GE(batches, 16);
  EXPECT_GT(passes, 0) << "evaluations are forward passes as well";
}

// From the logits, on one rank and on several, beside the model's own.
TEST_F(TrainerPartsTest, TheLossIsReplaceableOnEveryLayout) {
  const auto twice = [](RunSetup&) {
    TrainerParts parts;
    parts.step.loss = {.run =
                           [](const models::Bundle& outputs, const models::Bundle& batch) {
                             const Tensor loss =
                                 CrossEntropy(outputs.at(keys::kLogits), batch.at(keys::kTargets),
                                              {.reduction = LossReduction::kSum});
                             return Add(loss, loss);
                           },
                       .capturable = true};
    return parts;
  };
  RunConfig plain = Config("plain");
  plain.max_steps = 4;
  plain.log_interval = 1;
  plain.gradient_accumulation_steps = 4;
  plain.deterministic = true;
  Train(plain);
  RunConfig one = plain;
  one.out += "_one";
  EXPECT_EQ(Run(one, 1, twice), "");
  const double first = Rows(plain)[0]["loss"].get<double>();
  EXPECT_NEAR(Rows(one)[0]["loss"].get<double>(), 2 * first, 1e-5 * first);
  EXPECT_NEAR(LastOf(one, "val_loss").get<double>(), 2 * LastOf(plain, "val_loss").get<double>(),
              0.05);
  RunConfig sharded = one;
  sharded.out += "_zero";
  sharded.zero = 3;
  sharded.gradient_accumulation_steps = 2;
  EXPECT_EQ(Run(sharded, 2, twice), "");
  EXPECT_EQ(Losses(sharded), Losses(one));
  RunConfig pipelined = one;
  pipelined.out += "_stages";
  pipelined.pp = 2;
  EXPECT_EQ(Run(pipelined, 2, twice), "");
  EXPECT_EQ(Losses(pipelined), Losses(one));
}

TEST_F(TrainerPartsTest, WhatAPipelineHasNoPlaceForIsRefused) {
  RunConfig config = Config("stages");
  config.pp = 2;
  config.gradient_accumulation_steps = 2;
  const std::string failure = Run(config, 2, [](RunSetup& setup) {
    TrainerParts parts;
    parts.step.forward.run = [&](const models::Bundle& batch, const models::RunOptions& options) {
      return setup.model->Run(batch, options);
    };
    return parts;
  });
  EXPECT_NE(failure.find("`forward` cannot be replaced"), std::string::npos) << failure;
}

TEST_F(TrainerPartsTest, TheOptimizerAndItsRate) {
  RunConfig sgd = Config("sgd");
  sgd.optimizer = "sgd";
  sgd.options["momentum"] = 0;
  sgd.log_interval = 1;
  sgd.lr = 0.25;
  sgd.lr_schedule = "constant";
  Train(sgd);
  RunConfig config = sgd;
  config.out += "_part";
  config.optimizer = "adamw";
  config.options = nlohmann::json::object();
  config.lr = 1e-3;
  TrainerParts parts;
  parts.step.optimizer.run = [](std::vector<optim::ParameterGroup> groups) {
    return std::make_unique<optim::Sgd>(std::move(groups), optim::SgdOptions{.momentum = 0});
  };
  parts.learning_rate.run = [](int64_t, int64_t) { return 0.25; };
  EXPECT_EQ(Run(config, parts), "");
  EXPECT_EQ(Losses(config), Losses(sgd));
}

TEST_F(TrainerPartsTest, EvaluationsAndTheirSteps) {
  RunConfig config = Config("prediction");
  TrainerParts parts;
  parts.prediction_step.run = [](const models::Bundle& batch, const models::RunOptions&) {
    const Tensor count =
        Full({}, static_cast<double>(batch.at(keys::kTargets).numel()), DType::kFloat64);
    return models::Bundle{{keys::kLoss, Mul(count, Full({}, 3.0, DType::kFloat64))}};
  };
  EXPECT_EQ(Run(config, parts), "");
  EXPECT_EQ(LastOf(config, "val_loss"), 3.0);

  config.out = Config("evaluation").out;
  config.eval_batches = 2;
  parts = {};
  parts.evaluate.run = [](const BatchSource& batches) -> StatusOr<EvaluationResult> {
    EXPECT_EQ(batches.size, 2);
    EvaluationResult result = {.loss = 42};
    result.metrics["rows"] = (*batches.batch(1)).rows;
    return result;
  };
  EXPECT_EQ(Run(config, parts), "");
  EXPECT_EQ(LastOf(config, "val_loss"), 42);
  EXPECT_EQ(LastOf(config, "val_rows"), 4);
}

// Without validation data in the run, too.
TEST_F(TrainerPartsTest, ValidationBatchesAreTheProgramsWhereItGivesThem) {
  RunConfig config = Config("loader");
  config.val_fraction = 0;
  Train(config);
  EXPECT_EQ(LastOf(config, "val_loss"), nullptr);
  config.out += "_given";
  int asked = 0;
  EXPECT_EQ(Run(config, 1,
                [&](RunSetup& setup) {
                  TrainerParts parts;
                  parts.validation_batches.run = [&] {
                    ++asked;
                    return BatchesOf(*setup.data.train, config.batch_size, 1);
                  };
                  return parts;
                }),
            "");
  EXPECT_EQ(asked, 1);
  EXPECT_GT(LastOf(config, "val_loss").get<double>(), 0);
}

TEST_F(TrainerPartsTest, RowsOfMetrics) {
  RunConfig config = Config("log");
  TrainerParts parts;
  parts.log.run = [](const nlohmann::ordered_json& row, MetricsLog& file) {
    nlohmann::ordered_json more = row;
    more["mine"] = row["step"].get<int64_t>() * 2;
    return file.Append(more);
  };
  EXPECT_EQ(Run(config, parts), "");
  EXPECT_EQ(LastOf(config, "mine"), 16);
}

}  // namespace
}  // namespace tessera::train
