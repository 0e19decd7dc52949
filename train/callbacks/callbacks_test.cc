// SPDX-License-Identifier: Apache-2.0
// What callbacks are told, what they may ask for, and those that a configuration asks for: the same
// on every layout, and after a resume into another one.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>

#include "base/file.h"
#include "core/thread_communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/hub/load_model.h"
#include "nlohmann/json.hpp"
#include "train/callbacks/early_stopping.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// --- One by one ----------------------------------------------------------------------------------

TrainState Evaluated(double loss, double f1 = 0) {
  TrainState state;
  state.val_loss = loss;
  state.val_metrics["f1"] = f1;
  return state;
}

TEST(JudgedMetricTest, NamesAndDirections) {
  struct Case {
    const char* name;
    const char* row;
    bool greater;
  };
  for (const Case& c : {Case{"loss", "val_loss", false},
                        {"eval_loss", "val_loss", false},
                        {"val_loss", "val_loss", false},
                        {"f1", "val_f1", true},
                        {"eval_f1", "val_f1", true},
                        {"mse", "val_mse", false}}) {
    const JudgedMetric metric = JudgedMetric::Named(c.name);
    EXPECT_EQ(metric.row_name(), c.row);
    EXPECT_EQ(metric.Better(2, 1), c.greater) << c.name;
    EXPECT_EQ(metric.Better(1, 2), !c.greater) << c.name;
    EXPECT_FALSE(metric.Better(1, 1)) << c.name;
    EXPECT_TRUE(JudgedMetric::Named(c.name, true).Better(2, 1));
    EXPECT_TRUE(JudgedMetric::Named(c.name, false).Better(1, 2));
  }
  EXPECT_EQ(JudgedMetric::Named("eval_f1").Of(Evaluated(1, 0.5)), 0.5);
  EXPECT_EQ(JudgedMetric::Named("eval_loss").Of(Evaluated(1, 0.5)), 1);
  EXPECT_EQ(JudgedMetric::Named("loss").Of(Evaluated(kNan)), std::nullopt);
  EXPECT_EQ(JudgedMetric::Named("accuracy").Of(Evaluated(1)), std::nullopt);
  EXPECT_EQ(Message(JudgedMetric::Named("eval_f2").CheckAmong({"accuracy", "f1"})),
            "metric_for_best_model: an evaluation has no 'f2'; did you mean 'f1'?; it has loss, "
            "accuracy, f1");
}

// After which of these evaluations a run ends; 0: it does not.
size_t EndsAfter(const EarlyStoppingOptions& options, const std::vector<double>& losses) {
  auto stopping = std::make_unique<EarlyStopping>(options);
  for (size_t i = 0; i < losses.size(); ++i) {
    TrainControl control;
    stopping->OnEvaluate(Evaluated(losses[i], -losses[i]), control);
    EXPECT_EQ(control.stop, !control.reason.empty());
    if (control.stop) return i + 1;
    // A resume between any two changes nothing.
    auto resumed = std::make_unique<EarlyStopping>(options);
    EXPECT_TRUE(resumed->Restore(nlohmann::json::parse(stopping->State().dump())).ok());
    stopping = std::move(resumed);
  }
  return 0;
}

TEST(EarlyStoppingTest, CountsEvaluationsThatAreNoBetter) {
  const JudgedMetric loss = JudgedMetric::Named("loss");
  EXPECT_EQ(EndsAfter({.patience = 1}, {5, 4, 3, 2}), 0u);
  EXPECT_EQ(EndsAfter({.patience = 1}, {5, 4, 4}), 3u) << "as good is no better";
  EXPECT_EQ(EndsAfter({.patience = 2}, {5, 6, 4, 6, 3.9, 7, 8}), 7u) << "in a row";
  EXPECT_EQ(EndsAfter({.patience = 2}, {5, kNan, kNan}), 3u);
  EXPECT_EQ(EndsAfter({.patience = 2}, {kNan, 5, 4}), 0u);
  // Against the best one, which small steps move, too.
  EXPECT_EQ(EndsAfter({.patience = 2, .threshold = 0.5}, {5, 4.8, 4.6}), 3u);
  EXPECT_EQ(EndsAfter({.patience = 2, .threshold = 0.5}, {5, 4.8, 4.2}), 0u);
  EXPECT_EQ(EndsAfter({.metric = JudgedMetric::Named("f1"), .patience = 1}, {5, 4, 4.5}), 3u);
}

TEST(EarlyStoppingTest, AStateThatIsNoneIsRefused) {
  EarlyStopping stopping({});
  for (const nlohmann::json& state :
       {nlohmann::json(), nlohmann::json(3), nlohmann::json{{"best", "x"}, {"worse", 1}},
        nlohmann::json{{"best", 1.0}, {"worse", 0.5}}}) {
    EXPECT_FALSE(stopping.Restore(state).ok()) << state;
  }
}

// --- In a run ------------------------------------------------------------------------------------

struct Outcome {
  TrainResult result;
  std::map<std::string, std::vector<float>> weights;  // of the model that is written
  std::string said;
};

class CallbacksTest : public SmallRuns {
 protected:
  using CallbackOf = std::function<std::unique_ptr<TrainerCallback>(int rank)>;

  // Validation losses by a list: what the model computes does not matter.
  static TrainerParts Judged(const std::vector<double>& losses, int64_t interval,
                             const Trainer* const* trainer) {
    TrainerParts parts;
    parts.evaluate.run = [=](const BatchSource&) -> StatusOr<EvaluationResult> {
      const auto number = static_cast<size_t>((*trainer)->state().step / interval - 1);
      return EvaluationResult{.loss = losses.at(number)};
    };
    return parts;
  }

  static Outcome Run(const RunConfig& config, int ranks, bool resume = false,
                     const std::vector<double>& losses = {}, const CallbackOf& callback = nullptr) {
    Outcome outcome;
    std::mutex mutex;
    RunRanks(ranks, [&](const std::shared_ptr<Communicator>& world) {
      const auto mesh = MakeMesh(config, world);
      ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
      auto setup = PrepareRun(config, *mesh);
      ASSERT_TRUE(setup.ok()) << Message(setup.status());
      const Trainer* self = nullptr;
      Trainer trainer(
          setup->config, *setup->model, setup->data, *mesh,
          losses.empty() ? TrainerParts() : Judged(losses, config.eval_interval, &self));
      self = &trainer;
      const auto mine = callback != nullptr ? callback(world->rank()) : nullptr;
      if (mine != nullptr) trainer.AddCallback(mine.get());
      std::FILE* const file = std::tmpfile();
      const auto result = trainer.Train({.resume = resume, .output = file});
      ASSERT_TRUE(result.ok()) << Message(result.status());
      ASSERT_TRUE(trainer.SaveModel(config.out + "/model", nullptr).ok());
      const std::lock_guard<std::mutex> lock(mutex);
      if (mesh->prints()) {
        outcome.result = *result;
        outcome.said.resize(static_cast<size_t>(std::ftell(file)));
        std::rewind(file);
        EXPECT_EQ(std::fread(outcome.said.data(), 1, outcome.said.size(), file),
                  outcome.said.size());
      }
      std::fclose(file);
    });
    const auto written = models::LoadModel(config.out + "/model", {.require_weights = true});
    EXPECT_TRUE(written.ok()) << Message(written.status());
    for (const auto& [name, tensor] : (*written)->StateDict()) {
      outcome.weights[name] = tensor.ToVector<float>();
    }
    return outcome;
  }

  // Rows of another of the run's files, without what depends on the clock.
  static std::vector<nlohmann::json> RowsOf(const RunConfig& config, const std::string& name) {
    std::ifstream in(config.out + "/" + name);
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(in, line);) {
      rows.push_back(nlohmann::json::parse(line));
      for (const char* key : {"tokens_per_second", "seconds", "peak_bytes"}) rows.back().erase(key);
    }
    return rows;
  }
  void ExpectTheSameFiles(const RunConfig& a, const RunConfig& b) {
    EXPECT_EQ(Losses(a), Losses(b));
    for (const char* name : {"epochs.jsonl", "samples.jsonl"}) {
      EXPECT_EQ(RowsOf(a, name), RowsOf(b, name)) << name;
    }
  }
};

struct Recorder : TrainerCallback {
  explicit Recorder(std::string* said) : said(*said) {}
  void Say(const char* what, const TrainState& state) { said += Concat(what, state.step, " "); }
  void OnTrainBegin(const TrainState& s, TrainControl&) override { Say("begin", s); }
  void OnTrainEnd(const TrainState& s) override { Say("end", s); }
  void OnEpochBegin(const TrainState& s, TrainControl&) override { Say("epoch(", s); }
  void OnEpochEnd(const TrainState& s, TrainControl&) override { Say(")epoch", s); }
  void OnStepBegin(const TrainState& s, TrainControl&) override { Say("(", s); }
  void OnStepEnd(const TrainState& s, TrainControl&) override { Say(")", s); }
  void OnLog(const TrainState& s, const nlohmann::ordered_json& row, TrainControl&) override {
    EXPECT_EQ(row["step"], s.step);
    Say("log", s);
  }
  void OnEvaluate(const TrainState& s, TrainControl&) override { Say("eval", s); }
  void OnSave(const TrainState& s, const std::string& path, TrainControl&) override {
    EXPECT_TRUE(PathExists(path)) << path;
    Say("save", s);
  }
  std::string& said;
};

TEST_F(CallbacksTest, EventsComeInOrder) {
  RunConfig config = Config("run");
  config.batch_size = 476;  // two steps are an epoch
  config.max_steps = 4;
  config.seq_len = 20;
  config.log_interval = 2;
  config.eval_interval = 4;
  config.eval_batches = 1;
  config.save_interval = 3;
  std::string said;
  const Outcome outcome =
      Run(config, 1, false, {}, [&](int) { return std::make_unique<Recorder>(&said); });
  ASSERT_EQ(outcome.result.state.epoch, 2);
  EXPECT_EQ(said,
            "begin0 epoch(0 (0 )1 (1 )2 log2 )epoch2 epoch(2 (2 )3 save3 (3 )4 log4 eval4 "
            ")epoch4 save4 end4 ");
}

// What one rank of several asks for all of them do.
struct Asks : TrainerCallback {
  void OnStepEnd(const TrainState& state, TrainControl& control) override {
    control.log = state.step == 2;
    control.evaluate = state.step == 3;
  }
  void OnEvaluate(const TrainState& state, TrainControl& control) override {
    control.save = state.step == 3;
  }
  void OnSave(const TrainState& state, const std::string&, TrainControl& control) override {
    if (state.step == 3) control.Stop("it was asked to");
  }
};

TEST_F(CallbacksTest, WhatOneRankAsksForAllDo) {
  for (const int ranks : {1, 2, 4}) {
    RunConfig config = Config(Concat("run", ranks));
    config.log_interval = 100;
    config.batch_size = 4 / ranks;
    config.zero = ranks == 4 ? 3 : 0;
    const Outcome outcome = Run(config, ranks, false, {}, [&](int rank) {
      return rank == ranks - 1 ? std::make_unique<Asks>() : nullptr;
    });
    EXPECT_EQ(outcome.result.ended_by, ranks == 1 ? "it was asked to" : "a callback");
    EXPECT_EQ(outcome.result.stopped_by, "");
    const auto rows = Rows(config);
    ASSERT_EQ(rows.size(), 2u) << ranks;
    EXPECT_EQ(rows[0]["step"], 2);
    EXPECT_TRUE(rows[1].contains("val_loss"));
    EXPECT_EQ(rows[1]["step"], 3);
    EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>{3});
  }
}

TEST_F(CallbacksTest, AnEvaluationOfNothingIsAnError) {
  RunConfig config = Config("run");
  config.val_fraction = 0;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok());
  Trainer trainer(setup->config, *setup->model, setup->data);
  Asks asks;
  trainer.AddCallback(&asks);
  EXPECT_EQ(Message(trainer.Train({.output = nullptr}).status()),
            "a callback asks for an evaluation, and there is no validation data (val_data, "
            "val_fraction)");
}

struct Layout {
  std::string name = {};
  int ranks = 1;
  int tp = 1;
  int pp = 1;
  int zero = 0;
  int64_t micro_batches = 4;
};

// Validation losses fall until step 6 and rise after it: the run ends after step 12, and its model
// is that of step 6, which two newer checkpoints have not pushed out.
TEST_F(CallbacksTest, TheBestModelIsKeptAndGivenBackOnEveryLayout) {
  const std::vector<double> losses = {5, 4, 3, 3.5, 4, 4.5, 1, 1, 1, 1};
  const auto config_of = [&](const Layout& layout) {
    RunConfig config = Config(layout.name);
    config.max_steps = 20;
    config.batch_size = 1;
    config.gradient_accumulation_steps = layout.micro_batches;
    config.deterministic = true;
    config.tp = layout.tp;
    config.pp = layout.pp;
    config.zero = layout.zero;
    config.eval_interval = 2;
    config.save_interval = 5;
    config.num_checkpoints = 1;
    config.early_stopping_patience = 3;
    config.load_best_model_at_end = true;
    return config;
  };
  RunConfig plain = config_of({.name = "plain"});
  plain.max_steps = 6;
  plain.early_stopping_patience.reset();
  plain.load_best_model_at_end = false;
  plain.lr_schedule = "constant";
  const Outcome best = Run(plain, 1);
  const std::vector<Layout> layouts = {{.name = "one"},
                                       {.name = "zero2", .ranks = 2, .zero = 2, .micro_batches = 2},
                                       {.name = "zero3", .ranks = 4, .zero = 3, .micro_batches = 1},
                                       {.name = "stages", .ranks = 2, .pp = 2},
                                       {.name = "split", .ranks = 2, .tp = 2}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    RunConfig config = config_of(layout);
    config.lr_schedule = "constant";
    const Outcome outcome = Run(config, layout.ranks, false, losses);
    EXPECT_EQ(outcome.result.state.step, 12);
    EXPECT_EQ(outcome.result.ended_by, "early stopping: val_loss was no better in 3 evaluations");
    EXPECT_EQ(outcome.result.best_model, config.out + "/checkpoint-6");
    EXPECT_NE(outcome.said.find("the model is the best one, of step 6 (val_loss 3)"),
              std::string::npos)
        << outcome.said;
    EXPECT_EQ(dist::ListCheckpoints(config.out), std::vector<int64_t>({6, 12}));
    if (layout.tp == 1) {
      EXPECT_EQ(outcome.weights, best.weights);
    } else {
      for (const auto& [name, values] : best.weights) {
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(outcome.weights.at(name).at(i), values[i], 1e-4) << name;
        }
      }
    }
  }
}

// Interrupted after each step in turn, and continued on another layout each time.
TEST_F(CallbacksTest, AResumedRunIsTheUninterruptedOneUnderOtherLayouts) {
  const std::vector<double> losses = {5, 4, 4.5, 3, 3.5, 3.2, 3.1, 9, 9, 9, 9, 9};
  RunConfig whole = Config("whole");
  whole.max_steps = 24;
  whole.batch_size = 1;
  whole.gradient_accumulation_steps = 4;
  whole.deterministic = true;
  whole.eval_interval = 2;
  whole.num_checkpoints = 1;
  whole.early_stopping_patience = 4;
  whole.load_best_model_at_end = true;
  whole.report_to = {"tensorboard", "csv"};
  const Outcome uninterrupted = Run(whole, 1, false, losses);
  ASSERT_EQ(uninterrupted.result.state.step, 16);
  ASSERT_EQ(uninterrupted.result.best_model, whole.out + "/checkpoint-8");
  RunConfig config = whole;
  config.out = root_ + "/interrupted";
  struct Interrupt : TrainerCallback {
    explicit Interrupt(int64_t at) : at(at) {}
    void OnStepEnd(const TrainState& state, TrainControl&) override {
      if (state.step == at) std::raise(SIGTERM);
    }
    int64_t at;
  };
  const std::vector<Layout> layouts = {{.ranks = 1},
                                       {.ranks = 2, .zero = 3, .micro_batches = 2},
                                       {.ranks = 2, .pp = 2},
                                       {.ranks = 4, .zero = 1, .micro_batches = 1}};
  Outcome outcome;
  for (int64_t step = 1; step <= 17; ++step) {
    SCOPED_TRACE(step);
    const Layout& layout = layouts[static_cast<size_t>(step) % layouts.size()];
    config.zero = layout.zero;
    config.pp = layout.pp;
    config.gradient_accumulation_steps = layout.micro_batches;
    outcome = Run(config, layout.ranks, /*resume=*/true, losses, [&](int rank) {
      return rank == 0 ? std::make_unique<Interrupt>(step) : nullptr;
    });
    EXPECT_EQ(outcome.result.stopped_by, step <= 16 ? "SIGTERM" : "");
  }
  EXPECT_EQ(outcome.result.state.step, 16);
  EXPECT_EQ(outcome.result.ended_by, uninterrupted.result.ended_by);
  EXPECT_EQ(outcome.result.best_model, config.out + "/checkpoint-8");
  EXPECT_EQ(outcome.weights, uninterrupted.weights);
  ExpectTheSameFiles(config, whole);
  EXPECT_EQ(dist::ListCheckpoints(config.out), dist::ListCheckpoints(whole.out));
}

// An epoch's row adds up over resumes, too.
TEST_F(CallbacksTest, EpochsHaveRows) {
  RunConfig config = Config("run");
  config.batch_size = 300;
  config.seq_len = 20;
  config.epochs = 2;
  config.max_steps.reset();
  config.eval_strategy = "epoch";
  config.eval_batches = 1;
  Train(config);
  const auto rows = RowsOf(config, "epochs.jsonl");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["epoch"], 1);
  EXPECT_EQ(rows[1]["epoch"], 2);
  const int64_t steps = rows[1]["step"].get<int64_t>();
  EXPECT_LT(rows[1]["loss"].get<double>(), rows[0]["loss"].get<double>());
  EXPECT_TRUE(rows[0].contains("val_loss"));
  RunConfig parts = config;
  parts.out += "_parts";
  for (int64_t step = 1; step < steps; step += 2) {
    StopAt stop(step);
    Train(parts, /*resume=*/step > 1, &stop);
  }
  Train(parts, /*resume=*/true);
  ExpectTheSameFiles(parts, config);
}

struct Counts : TrainerCallback {
  void OnStepEnd(const TrainState&, TrainControl&) override { ++steps; }
  std::string name() const override { return "counts"; }
  nlohmann::json State() const override { return steps; }
  Status Restore(const nlohmann::json& state) override {
    if (!state.is_number_integer()) return InvalidArgument("is no number");
    steps = state.get<int64_t>();
    return OkStatus();
  }
  int64_t steps = 0;
};

TEST_F(CallbacksTest, WhatOneRemembersIsInTheCheckpoint) {
  RunConfig config = Config("run");
  struct CountsAndStops : Counts {
    explicit CountsAndStops(int64_t at) : at(at) {}
    void OnStepEnd(const TrainState& state, TrainControl& control) override {
      Counts::OnStepEnd(state, control);
      control.stop = state.step == at;
    }
    int64_t at;
  };
  CountsAndStops first(3);
  Train(config, false, &first);
  CountsAndStops second(6);
  Train(config, true, &second);
  EXPECT_EQ(second.steps, 6);
  const Outcome without = Run(config, 1, true);
  EXPECT_NE(without.said.find("warning: the checkpoint's run had a callback 'counts', which this "
                              "one has not"),
            std::string::npos)
      << without.said;
  config.max_steps = 10;
  Counts* counts = nullptr;
  const Outcome anew = Run(config, 1, true, {}, [&](int) {
    auto made = std::make_unique<Counts>();
    counts = made.get();
    return made;
  });
  EXPECT_NE(anew.said.find("knows nothing of the callback 'counts'"), std::string::npos);
  struct Other : Counts {
    Status Restore(const nlohmann::json&) override { return InvalidArgument("is another's"); }
  } other;
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok());
  Trainer trainer(setup->config, *setup->model, setup->data);
  trainer.AddCallback(&other);
  EXPECT_EQ(Message(trainer.Train({.resume = true, .output = nullptr}).status()),
            "the checkpoint's state of the callback 'counts' is another's");
  Trainer doubled(setup->config, *setup->model, setup->data);
  doubled.AddCallback(&other);
  doubled.AddCallback(&other);
  EXPECT_EQ(Message(doubled.Train({.resume = true, .output = nullptr}).status()),
            "two callbacks are named 'counts'");
}

// What they read is that of the run that was interrupted.
TEST_F(CallbacksTest, AResumedRunBeginsWithTheStateOfTheOther) {
  struct Begins : TrainerCallback {
    void OnTrainBegin(const TrainState& state, TrainControl&) override { begun = state; }
    void OnStepEnd(const TrainState& state, TrainControl& control) override {
      control.stop = state.step == 5;
    }
    TrainState begun;
  };
  RunConfig config = Config("run");
  config.eval_interval = 4;
  Begins first;
  Train(config, false, &first);
  EXPECT_EQ(first.begun.val_loss, std::nullopt);
  Begins second;
  Train(config, /*resume=*/true, &second);
  EXPECT_EQ(second.begun.step, 5);
  EXPECT_GT(second.begun.epoch, 0);
  EXPECT_GT(second.begun.grad_norm, 0);
  EXPECT_EQ(second.begun.val_loss.value(), Rows(config)[1]["val_loss"].get<double>());
}

// A checkpoint of another run's folder: this one's must be empty, so that no file of a third run is
// taken for one of its own.
TEST_F(CallbacksTest, ARunMayGoOnFromAnothersCheckpoint) {
  RunConfig first = Config("first");
  first.eval_interval = 2;
  first.save_interval = 2;
  first.num_checkpoints = 9;
  first.load_best_model_at_end = true;
  Train(first);
  RunConfig second = first;
  second.out += "_on";
  const auto go_on = [&](const RunConfig& config, const std::string& from) {
    auto setup = PrepareRun(config);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    Trainer trainer(setup->config, *setup->model, setup->data);
    return trainer.Train({.resume_from = from, .output = nullptr}).status();
  };
  EXPECT_EQ(go_on(second, first.out + "/checkpoint-4"), OkStatus());
  EXPECT_EQ(dist::ListCheckpoints(second.out), std::vector<int64_t>({6, 8}));
  const Status refused = go_on(second, first.out + "/checkpoint-4");
  EXPECT_NE(Message(refused).find("holds checkpoints of an earlier run"), std::string::npos)
      << refused;
  // Of its own folder: what came after goes.
  RunConfig back = first;
  back.max_steps = 6;
  EXPECT_EQ(go_on(back, first.out + "/checkpoint-2"), OkStatus());
  EXPECT_EQ(dist::ListCheckpoints(first.out), std::vector<int64_t>({2, 4, 6}));
}

TEST_F(CallbacksTest, WhatCannotBeJudgedIsRefusedBeforeTheFirstStep) {
  const auto failure = [&](const std::function<void(RunConfig&)>& change) {
    RunConfig config = Config("refused");
    change(config);
    auto setup = PrepareRun(config);
    if (!setup.ok()) return Message(setup.status());
    Trainer trainer(setup->config, *setup->model, setup->data);
    const Status status = trainer.Train({.output = nullptr}).status();
    EXPECT_EQ(trainer.state().step, 0);
    return Message(status);
  };
  EXPECT_EQ(failure([](RunConfig& c) {
              c.load_best_model_at_end = true;
              c.metric_for_best_model = "accuracy";
            }),
            "metric_for_best_model: an evaluation has no 'accuracy'; it has loss");
  EXPECT_EQ(failure([](RunConfig& c) {
              c.early_stopping_patience = 2;
              c.val_fraction = 0;
            }),
            "early_stopping_patience needs validation data (val_data, val_fraction)");
  EXPECT_EQ(
      failure([](RunConfig& c) {
        c.load_best_model_at_end = true;
        c.eval_strategy = "no";
      }),
      "load_best_model_at_end is set, which needs eval_strategy steps or epoch (eval_strategy is "
      "no)");
  EXPECT_EQ(failure([](RunConfig& c) { c.metric_for_best_model = "f1"; }),
            "metric_for_best_model is set, which needs load_best_model_at_end true or "
            "early_stopping_patience (load_best_model_at_end is false)");
}

}  // namespace
}  // namespace tessera::train
