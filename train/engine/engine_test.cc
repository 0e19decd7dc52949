// SPDX-License-Identifier: Apache-2.0
#include "train/engine/engine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <stdexcept>

#include "core/thread_communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/elementwise/elementwise.h"
#include "optim/optimizer_kind.h"

namespace tessera::train {
namespace {

const nlohmann::json kGpt = {{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 12},
                             {"n_embd", 16},         {"n_layer", 2},     {"n_head", 2}};

// Two rows of 12 tokens, others for each micro-batch, the same in every step.
models::Bundle BatchOf(int64_t micro_batch) {
  std::vector<int64_t> ids;
  for (uint64_t i = 0; i < 24; ++i) {
    ids.push_back(static_cast<int64_t>((i * i + static_cast<uint64_t>(micro_batch) * 31) % 61));
  }
  const Tensor tensor = Tensor::FromVector(ids, {2, 12});
  return {{keys::kInputIds, tensor}, {keys::kLabels, tensor}};
}
constexpr double kTargets = 4 * 2 * 11;  // of four micro-batches; the first token has none

struct Setup {
  int ranks = 1;
  int zero = 0;
  std::string optimizer = "adamw";
};

std::string Folder(const std::string& name, uint64_t step) {
  return testing::TempDir() + "/engine_" + name + Concat(step);
}

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(Message(status));
}

// The losses of steps [begin, end); continues what was saved at `begin`, saves at `end`.
std::vector<double> Train(const Setup& setup, uint64_t begin, uint64_t end,
                          const std::string& folder) {
  std::vector<double> losses;
  std::mutex mutex;
  RunRanks(setup.ranks, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {});
    const auto model = models::BuildModel(kGpt, {.seed = 3});
    Require(model.status());
    const auto kind = optim::FindOptimizerKind(setup.optimizer);
    Require(kind.status());
    const auto rule = (*kind)->Configure({}, "engine_test");
    Require(rule.status());
    Engine engine(**model, mesh,
                  {.rule = *rule,
                   .weight_decay = 0.1,
                   .max_grad_norm = 1,
                   .store = {.stage = setup.zero, .deterministic = true}});
    engine.Start();
    if (begin > 0) {
      const auto saved = dist::Checkpoint::Open(Folder(folder, begin), *world);
      Require(saved.status());
      Require(saved->Load(engine.Tensors(), *world));
      engine.Loaded();
    }
    const int64_t mine = 4 / setup.ranks;
    for (uint64_t step = begin + 1; step <= end; ++step) {
      std::vector<models::Bundle> batches;
      for (int64_t m = 0; m < mine; ++m) {
        batches.push_back(BatchOf(world->rank() * mine + m));
      }
      models::RunOptions options;
      options.loss_reduction = LossReduction::kSum;
      const StepResult done = engine.Step({.batches = batches,
                                           .targets = kTargets,
                                           .learning_rate = 1e-2,
                                           .number = step,
                                           .options = [&](int64_t) { return options; }});
      EXPECT_EQ(done.losses.size(), batches.size());
      EXPECT_GT(done.grad_norm, 0);
      const std::lock_guard<std::mutex> lock(mutex);
      if (world->rank() == 0) losses.push_back(done.losses[0]);
    }
    Require(dist::SaveCheckpoint(Folder(folder, end), static_cast<int64_t>(end), engine.Tensors(),
                                 {}, *world));
  });
  return losses;
}

TEST(EngineTest, TrainsWithoutARunAndGoesOnWithOtherRanks) {
  for (const char* optimizer : {"adamw", "adafactor"}) {
    const std::string one = Concat("one_", optimizer);
    const std::string halves = Concat("halves_", optimizer);
    std::filesystem::remove_all(Folder(one, 8));
    for (const uint64_t step : {5, 8}) std::filesystem::remove_all(Folder(halves, step));
    const std::vector<double> whole = Train({.optimizer = optimizer}, 0, 8, one);
    EXPECT_LT(whole.back(), whole.front()) << optimizer;
    std::vector<double> parts =
        Train({.ranks = 4, .zero = 3, .optimizer = optimizer}, 0, 5, halves);
    const std::vector<double> rest =
        Train({.ranks = 2, .zero = 1, .optimizer = optimizer}, 5, 8, halves);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole) << optimizer;
  }
}

// The losses of two steps of two micro-batches with these parts.
std::vector<double> TrainWith(const std::function<StepParts(models::Model& model)>& parts_of) {
  const auto model = models::BuildModel(kGpt, {.seed = 3});
  Require(model.status());
  const auto rule = (*optim::FindOptimizerKind("sgd"))->Configure({}, "engine_test");
  Require(rule.status());
  Engine engine(**model, {}, {.rule = *rule}, parts_of(**model));
  engine.Start();
  std::vector<double> losses;
  for (uint64_t step = 1; step <= 2; ++step) {
    const std::vector<models::Bundle> batches = {BatchOf(0), BatchOf(1)};
    models::RunOptions options;
    options.loss_reduction = LossReduction::kSum;
    const StepResult done = engine.Step({.batches = batches,
                                         .targets = kTargets / 2,
                                         .learning_rate = 0.1,
                                         .number = step,
                                         .options = [&](int64_t) { return options; }});
    losses.insert(losses.end(), done.losses.begin(), done.losses.end());
    losses.push_back(done.grad_norm);
  }
  return losses;
}

TEST(EngineTest, PartsThatDoWhatTheEngineDoesChangeNoBit) {
  const std::vector<double> plain = TrainWith([](models::Model&) { return StepParts(); });
  int calls = 0;
  const auto forward = [&](models::Model& model) {
    return StepParts{
        .forward = {.run = [&](const models::Bundle& batch, const models::RunOptions& options) {
          ++calls;
          return model.Run(batch, options);
        }}};
  };
  EXPECT_EQ(TrainWith(forward), plain);
  EXPECT_EQ(calls, 4);
  const auto training_step = [&](models::Model& model) {
    return StepParts{
        .training_step = {.run = [&](const models::Bundle& batch, const models::RunOptions& options,
                                     const StepParts::Backward& backward) {
          ++calls;
          const Tensor loss = model.Run(batch, options).at(keys::kLoss);
          backward(loss);
          return loss.Detach();
        }}};
  };
  EXPECT_EQ(TrainWith(training_step), plain);
  EXPECT_EQ(calls, 8);
}

TEST(EngineTest, TheLossIsThePartsWhereOneIsGiven) {
  const std::vector<double> plain = TrainWith([](models::Model&) { return StepParts(); });
  const std::vector<double> twice = TrainWith([](models::Model&) {
    return StepParts{.loss = {.run = [](const models::Bundle& outputs, const models::Bundle&) {
                       EXPECT_TRUE(outputs.has(keys::kLogits));
                       const Tensor& loss = outputs.at(keys::kLoss);
                       return Add(loss, loss);
                     }}};
  });
  EXPECT_EQ(twice[0], 2 * plain[0]);
  EXPECT_EQ(twice[2], 2 * plain[2]);  // the norm
  EXPECT_NE(twice[3], 2 * plain[3]);  // of the step after
}

TEST(EngineTest, EveryPartOfAStepSaysWhetherItMayBeCaptured) {
  const auto forward = [](const models::Bundle& batch, const models::RunOptions&) { return batch; };
  StepParts parts;
  EXPECT_EQ(WhyNotCaptured(parts), nullptr);
  parts.forward = {.run = forward, .capturable = true};
  EXPECT_EQ(WhyNotCaptured(parts), nullptr);
  parts.loss = {.run = [](const models::Bundle&, const models::Bundle&) { return Tensor(); }};
  EXPECT_STREQ(WhyNotCaptured(parts), "the program's loss may differ from step to step");
}

}  // namespace
}  // namespace tessera::train
