// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "autograd/autograd.h"
#include "base/file.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

using TrainerTest = SmallRuns;

TEST_F(TrainerTest, LearnsAndWritesItsMetrics) {
  RunConfig config = Config("run");
  config.max_steps = 60;
  config.log_interval = 20;
  config.lr = 3e-3;
  Train(config);
  const auto rows = Rows(config);
  ASSERT_EQ(rows.size(), 4u);
  for (const char* key : {"step", "loss", "lr", "grad_norm", "tokens_per_second", "peak_bytes"}) {
    EXPECT_TRUE(rows[0].contains(key)) << key;
  }
  EXPECT_EQ(rows[0]["step"], 20);
  EXPECT_EQ(rows[3]["step"], 60);
  EXPECT_LT(rows[2]["loss"].get<double>(), 0.6 * rows[0]["loss"].get<double>());
  EXPECT_LT(rows[3]["val_loss"].get<double>(), rows[0]["loss"].get<double>());
  EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>{60});
}

// What a run of `config` says.
std::string OutputOf(const RunConfig& config) {
  auto setup = PrepareRun(config);
  EXPECT_TRUE(setup.ok()) << Message(setup.status());
  if (!setup.ok()) return "";
  std::FILE* file = std::tmpfile();
  Trainer trainer(setup->config, *setup->model, setup->data);
  const auto result = trainer.Train({.output = file});
  EXPECT_TRUE(result.ok()) << Message(result.status());
  std::string text(static_cast<size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

// float32 weights and states, products in half precision: near the float32 run and not equal to it,
// the same with recomputation, and after a resume.
TEST_F(TrainerTest, AutocastTrainsFloat32WeightsWithHalfPrecisionProducts) {
  RunConfig plain = Config("float32");
  Train(plain);
  const auto reference = Rows(plain);
  for (const char* half : {"bfloat16", "float16"}) {
    RunConfig config = Config(Concat("autocast_", half));
    config.autocast = half;
    const auto weights = Train(config);
    const auto rows = Rows(config);
    ASSERT_EQ(rows.size(), reference.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].contains("loss")) continue;
      EXPECT_NE(rows[i]["loss"], reference[i]["loss"]);
      EXPECT_NEAR(rows[i]["loss"].get<double>(), reference[i]["loss"].get<double>(), 0.02);
    }
    RunConfig recomputed = config;
    recomputed.out += "_recomputed";
    recomputed.checkpoint_activations = true;
    EXPECT_EQ(Train(recomputed), weights);
    RunConfig resumed = config;
    resumed.out += "_resumed";
    StopAt stop(5);
    Train(resumed, false, &stop);
    EXPECT_EQ(Train(resumed, /*resume=*/true), weights);
  }
  plain.dtype = "bfloat16";
  plain.autocast = "bfloat16";
  const Status status = plain.Validate();
  EXPECT_EQ(Message(status), "autocast is set, which needs dtype float32 (dtype is bfloat16)");
}

TEST_F(TrainerTest, ProfilesSomeStepsAndNeverLosesARunToIt) {
  RunConfig config = Config("profiled");
  config.max_steps = 4;
  config.profile = root_ + "/trace.json";
  config.profile_after = 1;
  config.eval_interval = 2;
  EXPECT_NE(OutputOf(config).find("profile of 2 steps in " + config.profile), std::string::npos);
  const StatusOr<std::string> trace = ReadFile(config.profile);
  ASSERT_TRUE(trace.ok());
  const auto events = nlohmann::json::parse(*trace, nullptr, false);
  ASSERT_FALSE(events.is_discarded());
  EXPECT_EQ(std::count_if(events.at("traceEvents").begin(), events.at("traceEvents").end(),
                          [](const auto& e) { return e.value("cat", "") == "evaluation"; }),
            1);

  config.out = root_ + "/unwritable";
  config.profile = root_ + "/no/such/folder/trace.json";
  EXPECT_NE(OutputOf(config).find("warning: profile: " + config.profile), std::string::npos);
  config.out = root_ + "/short";
  config.profile_after = 9;
  EXPECT_NE(OutputOf(config).find("warning: profile: nothing was profiled"), std::string::npos);
}

TEST_F(TrainerTest, ASummaryEndsWithTheStepsShareOfThePeak) {
  RunConfig config = Config("summed");
  config.max_steps = 4;
  config.profile_summary = true;
  config.profile_after = 1;
  EXPECT_THAT(OutputOf(config),
              testing::ContainsRegex("where the time of a step goes \\(2 steps; [0-9]+ thread.*\n"
                                     "(.*\n)*step [0-9.]+ ms, [0-9.]+ % of the FMA peak\n"));
  // Of a run that ends before, what there is of it.
  config.out = root_ + "/short";
  config.profile_after = 3;
  EXPECT_THAT(OutputOf(config), testing::HasSubstr("where the time of a step goes (1 step; "));
  config.profile_summary = false;
  config.profile_after = 1;
  EXPECT_THAT(Message(config.Validate()), testing::HasSubstr("profile_summary"));
}

// What the trainer is to do, step by step: the schedule, dropout's keys, the sum over micro-batches
// and over the uses of a tied weight, clipping and the update, each by hand.
TEST_F(TrainerTest, StepsAreThoseOfThePlainLoop) {
  RunConfig config = Config("run");
  config.optimizer = "sgd";
  config.options["momentum"] = 0;
  config.weight_decay = 0;
  config.lr = 0.5;
  config.min_lr = 0.1;
  config.warmup_steps = 2;
  config.max_steps = 4;
  config.max_grad_norm = 0.5;
  config.gradient_accumulation_steps = 2;
  config.log_interval = 1;
  config.seed = 7;
  const auto trained = Train(config);
  const auto rows = Rows(config);

  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  models::Model& model = *setup->model;
  const data::Sampler sampler({.num_samples = setup->data.train->size(),
                               .batch_size = config.batch_size,
                               .micro_batches = 2,
                               .seed = 7});
  const double rates[] = {0.25, 0.5, 0.1 + 0.4 * 0.5, 0.1};
  for (int64_t step = 0; step < 4; ++step) {
    double loss = 0;
    for (int64_t m = 0; m < 2; ++m) {
      const auto batch =
          setup->data.train->MakeBatch(sampler.Rows({.step = step, .micro_batch = m}));
      ASSERT_TRUE(batch.ok());
      models::RunOptions options;
      options.context = {.training = true,
                         .seed = 7,
                         .step = static_cast<uint64_t>(step + 1),
                         .micro_batch = static_cast<uint64_t>(m)};
      options.loss_reduction = LossReduction::kMean;  // every row is full: the mean of means
      const Tensor mean = model
                              .Run({{keys::kInputIds, batch->at(keys::kInputIds)},
                                    {keys::kTargets, batch->at(keys::kTargets)}},
                                   options)
                              .at(keys::kLoss);
      loss += 0.5 * mean.Item();
      Backward({mean}, {Full(mean.shape(), 0.5)});
    }
    std::map<const nn::Parameter*, std::vector<double>> grads;
    for (nn::Parameter* p : model.Parameters()) {
      std::vector<double>& sum = grads[p->tied_to != nullptr ? p->tied_to : p];
      const std::vector<double> mine = Grad(p->tensor).ToVector<double>();
      sum.resize(mine.size());
      for (size_t i = 0; i < mine.size(); ++i) sum[i] += mine[i];
    }
    double squares = 0;
    for (const auto& [p, grad] : grads) {
      for (const double g : grad) squares += g * g;
    }
    const double factor = std::min(1.0, 0.5 / (std::sqrt(squares) + 1e-6));
    for (const auto& [p, grad] : grads) {
      float* w = p->tensor.Detach().data<float>();
      for (size_t i = 0; i < grad.size(); ++i) {
        w[i] -= static_cast<float>(rates[step] * factor * grad[i]);
      }
    }
    model.ZeroGrad();
    const nlohmann::json& row = rows[static_cast<size_t>(step)];
    EXPECT_NEAR(row["lr"].get<double>(), rates[step], 1e-12);
    EXPECT_NEAR(row["loss"].get<double>(), loss, 1e-5 * loss);
    EXPECT_NEAR(row["grad_norm"].get<double>(), std::sqrt(squares), 1e-4 * std::sqrt(squares));
  }
  for (const auto& [name, tensor] : model.StateDict()) {
    const std::vector<float> expected = tensor.ToVector<float>();
    const std::vector<float>& actual = trained.at(name);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 2e-5) << name << " element " << i;
    }
  }
}

TEST_F(TrainerTest, EvaluationIsWithoutDropout) {
  RunConfig config = Config("run");
  config.dropout = 0.5;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  Trainer trainer(setup->config, *setup->model, setup->data);
  const auto with = trainer.Evaluate(*setup->data.validation, 0);
  setup->model->SetDropout(0);
  const auto without = trainer.Evaluate(*setup->data.validation, 0);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(with->loss, without->loss);
}

TEST_F(TrainerTest, AResumedRunIsTheUninterruptedOne) {
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    RunConfig whole = Config(std::string("whole_") + dtype);
    whole.dtype = dtype;
    whole.save_interval = 4;
    const auto expected = Train(whole);
    RunConfig parts = whole;
    parts.out = Config(std::string("parts_") + dtype).out;
    StopAt stop(5);  // between two rows of metrics
    Train(parts, false, &stop);
    EXPECT_EQ(dist::ListCheckpoints(parts.out), (std::vector<int64_t>{4, 5}));
    EXPECT_EQ(Train(parts, /*resume=*/true), expected) << dtype;
    EXPECT_EQ(Losses(parts), Losses(whole)) << dtype;
    EXPECT_EQ(Train(parts, /*resume=*/true), expected) << "a finished run stays as it is";
    EXPECT_EQ(Losses(parts), Losses(whole)) << dtype;
  }
}

TEST_F(TrainerTest, DamagedCheckpointsArePassedOver) {
  RunConfig config = Config("run");
  config.save_interval = 2;
  config.num_checkpoints = 3;
  const auto expected = Train(config);
  EXPECT_EQ(dist::ListCheckpoints(config.out), (std::vector<int64_t>{4, 6, 8}));
  // A flipped bit in the newest, the one before cut short.
  const std::string newest = config.out + "/checkpoint-8/tensors-00000-of-00001.safetensors";
  std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1000, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(-1000, std::ios::end);
  file.put(byte);
  file.close();
  fs::resize_file(config.out + "/checkpoint-6/tensors-00000-of-00001.safetensors", 5000);
  const auto damaged = dist::Checkpoint::Open(config.out + "/checkpoint-8");
  ASSERT_FALSE(damaged.ok());
  EXPECT_NE(Message(damaged.status()).find("checkpoint-8/tensors-00000-of-00001.safetensors"),
            std::string::npos);
  std::vector<std::string> warnings;
  const auto found =
      *dist::FindNewestCheckpoint(config.out, [&](const std::string& w) { warnings.push_back(w); });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step(), 4);
  EXPECT_EQ(warnings.size(), 2u);
  EXPECT_EQ(Train(config, /*resume=*/true), expected);
}

TEST_F(TrainerTest, AccumulationEqualsTheLargeBatch) {
  RunConfig large = Config("large");
  large.dropout = 0;  // its bits belong to the micro-batch
  // Many short documents, whose borders have no target: micro-batches differ in their number.
  large.options["reset_at_documents"] = true;
  large.data = {root_ + "/documents.jsonl"};
  std::ofstream documents(large.data[0]);
  for (int i = 0; i < 300; ++i) {
    documents << "{\"text\": \"" << std::string(static_cast<size_t>(3 + i * 7 % 23), 'a' + i % 26)
              << "\"}\n";
  }
  documents.close();
  large.batch_size = 8;
  RunConfig small = large;
  small.out = Config("small").out;
  small.batch_size = 2;
  small.gradient_accumulation_steps = 4;
  Train(large);
  Train(small);
  const auto a = Rows(large);
  const auto b = Rows(small);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "val_loss"}) {
      if (!a[i].contains(key)) continue;
      EXPECT_NEAR(b[i][key].get<double>(), a[i][key].get<double>(), 2e-5 * a[i][key].get<double>())
          << key;
    }
  }
}

// Training and validation data of which the first samples, or all, have nothing to learn.
class Silent : public data::Dataset {
 public:
  Silent(std::shared_ptr<const data::Dataset> rows, int64_t silent)
      : rows_(std::move(rows)), silent_(silent) {}
  int64_t size() const override { return rows_->size(); }
  StatusOr<data::Batch> MakeBatch(std::span<const data::Sample> samples) const override {
    TESSERA_ASSIGN_OR_RETURN(data::Batch batch, rows_->MakeBatch(samples));
    if (samples[0].position >= silent_) return batch;
    batch.targets = 0;
    Fill(batch.at(keys::kTargets), data::kIgnoreLabel);
    return batch;
  }

 private:
  const std::shared_ptr<const data::Dataset> rows_;
  const int64_t silent_;
};

TEST_F(TrainerTest, WithoutATargetThereIsNoRowAndNoBestModel) {
  RunConfig config = Config("run");
  config.log_interval = 1;
  config.eval_interval = 4;
  config.load_best_model_at_end = true;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  setup->data.train = std::make_shared<Silent>(setup->data.train, 3 * config.batch_size);
  setup->data.validation = std::make_shared<Silent>(setup->data.validation, INT64_MAX);
  std::FILE* file = std::tmpfile();
  Trainer trainer(setup->config, *setup->model, setup->data);
  const auto result = trainer.Train({.output = file});
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_FALSE(result->state.val_loss);
  EXPECT_EQ(result->best_model, "");
  const auto rows = Rows(config);
  ASSERT_EQ(rows.size(), 5u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["step"], static_cast<int>(i) + 4);
    EXPECT_GT(rows[i]["loss"], 1.0);
  }
  std::string text(static_cast<size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  EXPECT_NE(text.find("warning: step 8: the validation data have no target"), std::string::npos);
  EXPECT_NE(text.find("warning: 3 of 8 steps had no target"), std::string::npos) << text;
}

TEST_F(TrainerTest, ASignalSavesAndStops) {
  RunConfig config = Config("run");
  config.max_steps = 1000;
  struct Raise : TrainerCallback {
    void OnStepEnd(const TrainState& state, TrainControl&) override {
      if (state.step == 3) std::raise(SIGTERM);
    }
  } raise;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  Trainer trainer(setup->config, *setup->model, setup->data);
  trainer.AddCallback(&raise);
  const auto result = trainer.Train({.output = nullptr});
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_EQ(result->stopped_by, "SIGTERM");
  EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>{3});
}

// Whole steps only, and a rate that changes from epoch to epoch, as a function of the step.
TEST_F(TrainerTest, EpochsOfWholeStepsWithARateEach) {
  RunConfig config = Config("epochs");
  config.drop_last = true;
  config.max_steps.reset();
  config.epochs = 3;
  config.batch_size = 100;
  config.log_interval = 1;
  config.eval_strategy = "no";
  config.save_strategy = "epoch";
  config.num_checkpoints = 9;
  config.schedule_by_epoch = true;
  config.lr_schedule = "linear";
  config.min_lr = 0;
  config.warmup_steps = 1;
  auto setup = PrepareRun(config);
  const int64_t steps = setup->data.train->size() / 100;
  ASSERT_GT(steps, 1);
  ASSERT_GT(setup->data.train->size() % 100, 0);
  const auto weights = Train(config);
  const std::vector<nlohmann::json> rows = Rows(config);
  ASSERT_EQ(std::ssize(rows), 3 * steps);
  EXPECT_EQ(dist::ListCheckpoints(config.out), (std::vector<int64_t>{steps, 2 * steps, 3 * steps}));
  for (int64_t step = 1; step <= 3 * steps; ++step) {
    const double expected = config.lr * (1 - 0.5 * static_cast<double>((step - 1) / steps));
    EXPECT_NEAR(rows[static_cast<size_t>(step - 1)]["lr"].get<double>(), expected, 1e-12) << step;
  }
  config.out = Config("stopped").out;
  StopAt stop(steps + 1);
  Train(config, false, &stop);
  EXPECT_EQ(Train(config, /*resume=*/true), weights);
  config.batch_size = 10000;
  config.out = Config("few").out;
  setup = PrepareRun(config);
  Trainer trainer(setup->config, *setup->model, setup->data);
  EXPECT_NE(Message(trainer.Train({.output = nullptr}).status())
                .find("drop_last leaves nothing to train on: at least 10000 samples are taken"),
            std::string::npos);
}

TEST_F(TrainerTest, RefusesWhatWouldNotResume) {
  RunConfig config = Config("run");
  config.max_steps = 2;
  Train(config);
  auto again = PrepareRun(config);
  ASSERT_TRUE(again.ok());
  Trainer fresh(again->config, *again->model, again->data);
  const auto refused = fresh.Train({.output = nullptr});
  EXPECT_NE(Message(refused.status()).find("--resume"), std::string::npos);

  RunConfig other = config;
  other.model = "gpt-mini";
  auto wrong = PrepareRun(other);
  ASSERT_TRUE(wrong.ok());
  Trainer mini(wrong->config, *wrong->model, wrong->data);
  const auto mismatch = mini.Train({.resume = true, .output = nullptr});
  EXPECT_NE(Message(mismatch.status()).find("expected float32"), std::string::npos)
      << Message(mismatch.status());
}

}  // namespace
}  // namespace tessera::train
