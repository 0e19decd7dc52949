// SPDX-License-Identifier: Apache-2.0
// Every part of a run that a program may replace, seen to be used in place of the trainer's own.
#include "train/trainer_parts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "core/thread_communicator.h"
#include "data/dataset/sampler.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/sum.h"
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

// Hidden states of the text before, which this rank keeps: a run that was stopped continues with
// them, on as many data-parallel ranks only; evaluations begin without.
TEST_F(TrainerPartsTest, WhatAForwardPassKeepsIsSavedWithTheRun) {
  std::atomic<int> with = 0, without = 0;
  const auto looks_back = [&](RunSetup& setup) {
    TrainerParts parts;
    parts.step.forward_with_mems.run = [&](const models::Bundle& batch, models::RunOptions options,
                                           models::Bundle* mems) {
      ++(mems->empty() ? without : with);
      options.all_hidden_states = true;
      models::Bundle outputs = setup.model->Run(batch, options);
      const Tensor now = outputs.at(keys::kLastHiddenState);
      if (!mems->empty()) {
        EXPECT_FALSE(RequiresGrad(mems->at(keys::kHidden)));
        const Tensor step = Sub(now, mems->at(keys::kHidden));
        outputs.set(keys::kLoss, Add(outputs.at(keys::kLoss), Sum(Square(step))));
      }
      mems->set(keys::kHidden, now);
      return outputs;
    };
    return parts;
  };
  RunConfig whole = Config("whole");
  whole.batch_size = 2;
  whole.log_interval = 1;
  whole.eval_interval = 4;
  EXPECT_EQ(Run(whole, 2, looks_back), "");
  // One pass of each rank begins without, and each of an evaluation.
  EXPECT_EQ(with, 2 * 7);
  EXPECT_GT(without, 2);
  RunConfig stopped = whole;
  stopped.out += "_stopped";
  stopped.max_steps = 5;
  stopped.schedule_steps = whole.schedule_steps = 8;
  EXPECT_EQ(Run(stopped, 2, looks_back), "");
  stopped.max_steps = 8;
  const auto resumed = [&](int ranks) {
    std::string failure;
    std::mutex mutex;
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(stopped, world);
      auto setup = PrepareRun(stopped, *mesh);
      EXPECT_TRUE(setup.ok()) << Message(setup.status());
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh, looks_back(*setup));
      const auto result = trainer.Train({.resume = true, .output = nullptr});
      const std::lock_guard<std::mutex> lock(mutex);
      failure = Message(result.status());
    });
    return failure;
  };
  EXPECT_NE(resumed(1).find("checkpoint-5: 'mems.0' ... 'mems.1' are what 2 data-parallel ranks "
                            "keep from pass to pass; this run has 1"),
            std::string::npos)
      << resumed(1);
  with = without = 0;
  EXPECT_EQ(resumed(2), "");
  EXPECT_EQ(with, 2 * 3);
  std::vector<nlohmann::json> rows = Losses(stopped);
  std::erase_if(
      rows, [](const nlohmann::json& row) { return row["step"] == 5 && row.contains("val_loss"); });
  EXPECT_EQ(rows, Losses(whole));
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

// Each part in turn does what the trainer does, on every layout that has a place for it: it is
// called on every rank, and the run is the run without it.
TEST_F(TrainerPartsTest, EachIsReplaceableOnEveryLayout) {
  struct Layout {
    const char* name;
    int tp = 1;
    int pp = 1;
    int zero = 0;
    int micro_batches = 2;
  };
  // What a part may use of the rank it is on.
  struct Rank {
    RunSetup& setup;
    const dist::Mesh& mesh;
    std::atomic<int>& calls;
    const data::Dataset& validation() const { return *setup.data.validation; }
    BatchSource Batches() const { return BatchesOf(validation(), 2, 4); }
    Evaluator Plain() const {
      return {*setup.model,
              mesh,
              {.objective = setup.data.objective, .forward_is_collective = setup.config.zero == 3}};
    }
  };
  struct Part {
    const char* name;
    void (*replace)(const Rank& rank, TrainerParts* parts);
    bool in_pipelines = true;
    bool every_rank = true;
  };
  const Part all[] = {
      {"train_batch",
       [](const Rank& r, TrainerParts* parts) {
         parts->train_batch.run = [r](const data::BatchPlace& place) {
           ++r.calls;
           const RunConfig& config = r.setup.config;
           const data::Sampler sampler({.num_samples = r.setup.data.train->size(),
                                        .batch_size = config.batch_size,
                                        .micro_batches = config.accumulation_steps(),
                                        .seed = static_cast<uint64_t>(config.seed)});
           return r.setup.data.train->MakeBatch(sampler.Rows(place));
         };
       }},
      {"validation_batches",
       [](const Rank& r, TrainerParts* parts) {
         parts->validation_batches.run = [r] { return ++r.calls, r.Batches(); };
       }},
      {"log",
       [](const Rank& r, TrainerParts* parts) {
         parts->log.run = [r](const nlohmann::ordered_json& row, MetricsLog& file) {
           ++r.calls;
           return file.Append(row);
         };
       },
       true, false},
      {"optimizer",
       [](const Rank& r, TrainerParts* parts) {
         parts->step.optimizer.run = [r](std::vector<optim::ParameterGroup> groups) {
           ++r.calls;
           return std::make_unique<optim::Sgd>(std::move(groups), optim::SgdOptions{.momentum = 0});
         };
       }},
      {"learning_rate",
       [](const Rank& r, TrainerParts* parts) {
         parts->learning_rate.run = [r](int64_t, int64_t) { return ++r.calls, r.setup.config.lr; };
       }},
      {"loss",
       [](const Rank& r, TrainerParts* parts) {
         parts->step.loss.run = [r](const models::Bundle& outputs, const models::Bundle&) {
           ++r.calls;
           return outputs.at(keys::kLoss);
         };
       },
       true, false},
      {"forward",
       [](const Rank& r, TrainerParts* parts) {
         parts->step.forward.run = [r](const models::Bundle& batch,
                                       const models::RunOptions& options) {
           ++r.calls;
           return r.setup.model->Run(batch, options);
         };
       },
       false},
      {"training_step",
       [](const Rank& r, TrainerParts* parts) {
         parts->step.training_step.run = [r](const models::Bundle& batch,
                                             const models::RunOptions& options,
                                             const StepParts::Backward& backward) {
           ++r.calls;
           const Tensor loss = r.setup.model->Run(batch, options).at(keys::kLoss);
           backward(loss);
           return loss.Detach();
         };
       },
       false},
      {"prediction_step",
       [](const Rank& r, TrainerParts* parts) {
         parts->prediction_step.run = [r](const models::Bundle& batch,
                                          const models::RunOptions& options) {
           ++r.calls;
           return r.setup.model->Run(batch, options);
         };
       }},
      {"evaluate",
       [](const Rank& r, TrainerParts* parts) {
         parts->evaluate.run = [r](const BatchSource& batches) {
           ++r.calls;
           return r.Plain().Run(batches);
         };
       }},
      {"test_batches",
       [](const Rank& r, TrainerParts* parts) {
         parts->test_batches.run = [r] { return ++r.calls, r.Batches(); };
       }},
      {"predict", [](const Rank& r, TrainerParts* parts) {
         parts->predict.run = [r](const BatchSource& batches) {
           ++r.calls;
           return r.Plain().Predict(batches);
         };
       }}};
  // Trains, evaluates and predicts; the rows of the prediction, the same on all ranks.
  const auto run = [&](const RunConfig& config, const Part* part, std::atomic<int>* calls) {
    std::vector<PredictedRow> predicted;
    std::mutex mutex;
    RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
      auto setup = PrepareRun(config, *mesh);
      ASSERT_TRUE(setup.ok()) << Message(setup.status());
      setup->data.objective.predict = [](const data::Batch& batch, const BatchResult& result) {
        const double logit = result.outputs.at(keys::kLogits).ToVector<float>()[0];
        return std::vector<PredictedRow>(static_cast<size_t>(batch.rows),
                                         PredictedRow{{"prediction", logit}});
      };
      std::atomic<int> mine = 0;
      TrainerParts parts;
      const Rank rank = {*setup, *mesh, mine};
      if (part != nullptr) part->replace(rank, &parts);
      if (parts.test_batches.run == nullptr) {
        parts.test_batches.run = [&rank] { return rank.Batches(); };
      }
      Trainer trainer(setup->config, *setup->model, setup->data, *mesh, parts);
      const auto result = trainer.Train({.output = nullptr});
      ASSERT_TRUE(result.ok()) << Message(result.status());
      const auto rows = trainer.Predict();
      ASSERT_TRUE(rows.ok()) << Message(rows.status());
      const std::lock_guard<std::mutex> lock(mutex);
      if (part != nullptr && part->every_rank) {
        EXPECT_GT(mine, 0) << part->name;
      }
      *calls += mine;
      if (!predicted.empty()) {
        EXPECT_EQ(rows->rows, predicted);
      }
      predicted = rows->rows;
    });
    return predicted;
  };
  for (const Layout& layout : {Layout{.name = "data", .micro_batches = 1},
                               {.name = "sharded", .zero = 3, .micro_batches = 1},
                               {.name = "split", .tp = 2},
                               {.name = "stages", .pp = 2}}) {
    RunConfig config = Config(layout.name);
    config.max_steps = 3;
    config.batch_size = 2;
    config.gradient_accumulation_steps = layout.micro_batches;
    config.tp = layout.tp;
    config.pp = layout.pp;
    config.zero = layout.zero;
    config.log_interval = 1;
    config.eval_batches = 2;
    config.optimizer = "sgd";
    config.options["momentum"] = 0;
    config.lr_schedule = "constant";
    std::atomic<int> none = 0;
    const std::vector<PredictedRow> predicted = run(config, nullptr, &none);
    EXPECT_EQ(predicted.size(), 8u);
    for (const Part& part : all) {
      if (layout.pp > 1 && !part.in_pipelines) continue;
      SCOPED_TRACE(Concat(layout.name, ", ", part.name));
      RunConfig replaced = config;
      replaced.out += std::string("_") + part.name;
      std::atomic<int> calls = 0;
      EXPECT_EQ(run(replaced, &part, &calls), predicted);
      EXPECT_GT(calls, 0);
      EXPECT_EQ(Losses(replaced), Losses(config));
    }
  }
}

TEST_F(TrainerPartsTest, WhatAPipelineHasNoPlaceForIsRefused) {
  RunConfig config = Config("stages");
  config.pp = 2;
  config.gradient_accumulation_steps = 2;
  std::string failure = Run(config, 2, [](RunSetup& setup) {
    TrainerParts parts;
    parts.step.forward.run = [&](const models::Bundle& batch, const models::RunOptions& options) {
      return setup.model->Run(batch, options);
    };
    return parts;
  });
  EXPECT_NE(failure.find("`forward` cannot be replaced"), std::string::npos) << failure;
  failure = Run(config, 2, [](RunSetup&) {
    TrainerParts parts;
    parts.step.training_step.run = [](const models::Bundle&, const models::RunOptions&,
                                      const StepParts::Backward&) { return Tensor(); };
    return parts;
  });
  EXPECT_NE(failure.find("`training_step` cannot be replaced"), std::string::npos) << failure;
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
  config.options = JsonMember::Object();
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

// The program's test batches, and its own way to predict.
TEST_F(TrainerPartsTest, PredictionsAndTheirBatches) {
  RunConfig config = Config("predictions");
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok());
  setup->data.objective.predict = [](const data::Batch& batch, const BatchResult& result) {
    EXPECT_TRUE(result.outputs.has(keys::kLogits));
    return std::vector<PredictedRow>(
        static_cast<size_t>(batch.rows),
        PredictedRow{{"prediction", result.outputs.at(keys::kLogits).numel()}});
  };
  Trainer plain(setup->config, *setup->model, setup->data);
  EXPECT_EQ(Message(plain.Predict().status()),
            "there are no test batches (TrainerParts::test_batches)");
  TrainerParts parts;
  int asked = 0;
  parts.test_batches.run = [&] {
    ++asked;
    return BatchesOf(*setup->data.train, config.batch_size, 2);
  };
  Trainer given(setup->config, *setup->model, setup->data, {}, parts);
  const auto predicted = given.Predict();
  ASSERT_TRUE(predicted.ok()) << Message(predicted.status());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(predicted->rows.size(), 8u);
  EXPECT_EQ(predicted->found->loss, given.Evaluate(parts.test_batches.run())->loss);
  parts.predict.run = [](const BatchSource& batches) -> StatusOr<PredictionResult> {
    return PredictionResult{.rows = {{{"prediction", batches.size}}}, .found = {}};
  };
  Trainer own(setup->config, *setup->model, setup->data, {}, parts);
  EXPECT_EQ(own.Predict()->rows, std::vector<PredictedRow>({{{"prediction", 2}}}));
  setup->data.objective.predict = nullptr;
  Trainer none(setup->config, *setup->model, setup->data);
  EXPECT_EQ(Message(none.Predict(*setup->data.train).status()), "the task predicts nothing");
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
