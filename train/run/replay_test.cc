// SPDX-License-Identifier: Apache-2.0
// A step that ended a run, taken again up to the operation that gave the first number that is not
// finite.
#include <atomic>
#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
#include "train/run/bad_step.h"
#include "train/testing/small_runs.h"

namespace tessera::train {
namespace {

constexpr int64_t kBadStep = 3;
constexpr int64_t kBadMicroBatch = 2;  // of four

class ReplayTest : public SmallRuns {
 protected:
  RunConfig FourMicroBatches(const std::string& name) const {
    RunConfig config = Config(name);
    config.gradient_accumulation_steps = 4;
    config.max_steps = 5;
    config.val_fraction = 0;
    return config;
  }

  // What the program saw of its step.
  struct Seen {
    std::atomic<int> passes = 0;  // that began
    std::atomic<int> later = 0;   // operations and gradients after the bad one
  };

  // A forward pass whose loss has `fault` in one micro-batch.
  using LossFault = std::function<Tensor(const Tensor& loss, Seen* seen)>;
  static TrainerParts With(const models::Model& model, const LossFault& fault, Seen* seen) {
    TrainerParts parts;
    parts.step.forward.run = [&model, fault, seen](const models::Bundle& batch,
                                                   const models::RunOptions& options) {
      ++seen->passes;
      models::Bundle out = model.Run(batch, options);
      if (options.context.step == kBadStep && options.context.micro_batch == kBadMicroBatch) {
        out.set(keys::kLoss, fault(out.at(keys::kLoss), seen));
      }
      return out;
    };
    return parts;
  }

  // The run ends at its bad step.
  static void Train(const RunConfig& config, const LossFault& fault) {
    auto setup = PrepareRun(config);
    ASSERT_TRUE(setup.ok()) << Message(setup.status());
    Seen seen;
    Trainer trainer(setup->config, *setup->model, setup->data, {},
                    With(*setup->model, fault, &seen));
    const auto result = trainer.Train({.output = nullptr});
    ASSERT_EQ(Message(result.status()).find("step 3: "), 0u) << Message(result.status());
  }

  static BadStep Replay(const RunConfig& config, const LossFault& fault, const dist::Mesh& mesh,
                        Seen* seen, models::Bundle* tensors) {
    auto setup = PrepareRun(config, mesh);
    EXPECT_TRUE(setup.ok()) << Message(setup.status());
    Trainer trainer(setup->config, *setup->model, setup->data, mesh,
                    With(*setup->model, fault, seen));
    const auto found = trainer.Replay(kBadStep, tensors);
    EXPECT_TRUE(found.ok()) << Message(found.status());
    EXPECT_TRUE(found.ok() && *found);
    return found.ok() && *found ? **found : BadStep();
  }

  static double NumberNamed(const models::Bundle& tensors, const std::string& name) {
    const Tensor* const t = tensors.FindNamed(name);
    EXPECT_NE(t, nullptr) << name;
    return t == nullptr ? 0 : t->ToVector<double>().at(0);
  }

  static Tensor InfiniteResult(const Tensor& loss, Seen* seen) {
    const Tensor bad = Mul(loss, std::numeric_limits<double>::infinity());
    ++seen->later;
    return Mul(bad, 1.0);
  }
  // The root of zero is finite, and its gradient is not.
  static Tensor InfiniteGradient(const Tensor& loss, Seen* seen) {
    const Tensor zero = Mul(loss, 0.0);
    AddGradHook(zero, [seen](const Tensor& gradient) {
      ++seen->later;
      return gradient;
    });
    return Add(loss, Sqrt(zero));
  }
};

TEST_F(ReplayTest, NothingRunsAfterTheOperation) {
  const RunConfig config = FourMicroBatches("run");
  Train(config, InfiniteResult);
  Seen seen;
  models::Bundle tensors;
  const BadStep bad = Replay(config, InfiniteResult, {}, &seen, &tensors);
  EXPECT_EQ(bad.number.place.micro_batch, kBadMicroBatch);
  EXPECT_FALSE(bad.number.place.backward);
  EXPECT_EQ(bad.number.operation, "affine");
  EXPECT_EQ(seen.passes, kBadMicroBatch + 1);
  EXPECT_EQ(seen.later, 0);
  EXPECT_EQ(tensors.entries().size(), 2u);
  EXPECT_EQ(NumberNamed(tensors, "input.0"), bad.number.operands.at(0).greatest);
  EXPECT_TRUE(std::isinf(NumberNamed(tensors, "result.0")));
}

TEST_F(ReplayTest, AGradientFunctionGivesItsGradients) {
  const RunConfig config = FourMicroBatches("run");
  Train(config, InfiniteGradient);
  Seen seen;
  models::Bundle tensors;
  const BadStep bad = Replay(config, InfiniteGradient, {}, &seen, &tensors);
  EXPECT_EQ(bad.number.kind, BadNumber::Kind::kGradient);
  EXPECT_EQ(bad.number.operation, "sqrt");
  EXPECT_EQ(seen.passes, kBadMicroBatch + 1);
  EXPECT_EQ(seen.later, 0);
  EXPECT_EQ(tensors.entries().size(), 2u);
  EXPECT_EQ(std::abs(NumberNamed(tensors, "gradient.result.0")),
            bad.number.operands.at(0).greatest);
  EXPECT_TRUE(std::isinf(NumberNamed(tensors, "gradient.input.0")));
}

// Ranks wait for one another: all of them run the step's passes to the end.
TEST_F(ReplayTest, RanksNameTheSameOperationAndOneHasItsTensors) {
  RunConfig config = FourMicroBatches("run");
  Train(config, InfiniteGradient);
  config.gradient_accumulation_steps = 2;
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(config, world);
    ASSERT_TRUE(mesh.ok()) << Message(mesh.status());
    Seen seen;
    models::Bundle tensors;
    const BadStep bad = Replay(config, InfiniteGradient, *mesh, &seen, &tensors);
    EXPECT_EQ(bad.rank, 1);
    EXPECT_EQ(bad.number.operation, "sqrt");
    EXPECT_EQ(seen.passes, 2);
    EXPECT_EQ(tensors.empty(), world->rank() == 0);
    if (world->rank() == 1) {
      EXPECT_TRUE(std::isinf(NumberNamed(tensors, "gradient.input.0")));
    }
  });
}

// Of two ranks that share out experts, the second has the expert that overflows, and the first
// sees what came back to the tokens of its own micro-batch.
TEST_F(ReplayTest, WhatAnExpertsRankSentIsTheFaultOfItsOperation) {
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.ep = 2});
    const auto found = [&](const std::string& operation, const PassPlace& place, bool given) {
      const NumbersSummary finite;
      NumbersSummary infinite;
      infinite.not_finite = 1, infinite.first = 0, infinite.value = INFINITY;
      return BadNumber{.place = place,
                       .operation = operation,
                       .module = "experts",
                       .numbers = infinite,
                       .operands = {given ? infinite : finite}};
    };
    const bool is_first = world->rank() == 0;
    const BadNumber expert = found("grouped_linear", {.micro_batch = 3, .operation = 7}, true);
    const auto first_of = [&](const BadNumber& sent, int64_t micro_batches) {
      return FirstOfRanks(mesh, is_first ? sent : expert, micro_batches).value();
    };
    const BadNumber sent = found("exchange_rows", {.micro_batch = 1, .operation = 8}, false);
    const BadStep step = first_of(sent, 2);
    EXPECT_EQ(step.rank, 1);
    EXPECT_EQ(step.number.operation, "grouped_linear");
    EXPECT_EQ(step.number.place.micro_batch, 1);
    // Another pass, or a number that was sent on.
    EXPECT_EQ(first_of(sent, 3).number.operation, "exchange_rows");
    const BadNumber own = found("exchange_rows", {.micro_batch = 1, .operation = 8}, true);
    EXPECT_EQ(first_of(own, 2).rank, 0);
  });
}

TEST_F(ReplayTest, AStepThatIsNotTheCheckpointsIsRefused) {
  const RunConfig config = FourMicroBatches("run");
  Train(config, InfiniteResult);
  auto setup = PrepareRun(config);
  ASSERT_TRUE(setup.ok()) << Message(setup.status());
  Trainer trainer(setup->config, *setup->model, setup->data);
  const auto found = trainer.Replay(kBadStep + 1);
  EXPECT_NE(Message(found.status()).find("/bad_step: holds what step 3 began with, not step 4"),
            std::string::npos)
      << Message(found.status());
}

}  // namespace
}  // namespace tessera::train
