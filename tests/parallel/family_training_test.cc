// Every model family, trained for ten steps of four micro-batches with dropout and uneven targets:
// on two and four data-parallel ranks the bits of one process (deterministic sums), with tensor and
// sequence parallelism the same losses to 2e-6.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "dist/store/optimized_parameters.h"
#include "dist/store/parameter_store.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
#include "optim/adam/adam.h"
#include "optim/parameter_groups.h"
#include "tests/parallel/family_cases.h"

namespace tessera {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kMicroBatches = 4;

struct Outcome {
  std::vector<double> losses;  // of each micro-batch, in order
  std::map<std::string, std::vector<float>> weights;
};

Outcome Train(const FamilyCase& family, int dp, int tp, bool sequence_parallel) {
  Outcome outcome;
  RunRanks(dp * tp, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.tp = tp});
    auto model = models::BuildModel(
        family.config,
        {.seed = 11, .tensor_parallel = mesh.tp(), .sequence_parallel = sequence_parallel});
    if (!model.ok()) throw std::runtime_error(Message(model.status()));
    // Adam's first step moves a weight by lr times the sign of its gradient, and a gradient that
    // happens to be zero but for rounding has another sign on another layout. A larger epsilon
    // leaves such weights where they are.
    const auto make = [](std::vector<optim::ParameterGroup> groups) {
      return std::make_unique<optim::AdamW>(std::move(groups),
                                            optim::AdamOptions{.lr = 1e-3, .eps = 1e-4});
    };
    dist::ZeroOptions options{.stage = 0, .bucket_cap_mb = 0.01};
    options.deterministic = true;
    options.find_unused_parameters = true;
    dist::ParameterStore store(
        **model, optim::SplitByDecay(dist::OptimizedParameters(**model), {.weight_decay = 0.1}),
        make, {.data = mesh.dp(), .tensor = mesh.tp()}, options);
    const int64_t mine = kMicroBatches / dp;
    for (int step = 0; step < kSteps; ++step) {
      store.BeginStep(mine);
      const Tensor losses = Zeros({mine}, DType::kFloat64);
      for (int64_t m = 0; m < mine; ++m) {
        store.BeginMicroBatch(m);
        const auto number = static_cast<uint64_t>(mesh.dp()->rank() * mine + m);
        models::RunOptions options;
        options.context = {.training = true,
                           .seed = 7,
                           .step = static_cast<uint64_t>(step + 1),
                           .micro_batch = number};
        options.loss_reduction = LossReduction::kSum;
        options.keep_logits = false;
        const Tensor loss =
            (*model)
                ->Run(family.inputs(static_cast<uint64_t>(step) * kMicroBatches + number), options)
                .at(keys::kLoss);
        losses.data<double>()[m] = loss.Item();
        Backward(Mul(loss, 1.0 / 32));
      }
      store.FinishGradients();
      store.Step();
      const Tensor all = Empty({kMicroBatches}, DType::kFloat64);
      mesh.dp()->AllGather(all, losses)->Wait();
      if (world->rank() != 0) continue;
      for (const double loss : all.ToVector<double>()) outcome.losses.push_back(loss);
    }
    if (world->rank() != 0) return;
    for (const auto& [name, t] : (*model)->StateDict()) outcome.weights[name] = t.ToVector<float>();
  });
  return outcome;
}

class FamilyTrainingTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyTrainingTest, DataParallelRanksGiveTheBitsOfOneProcess) {
  const Outcome one = Train(GetParam(), 1, 1, false);
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps * kMicroBatches));
  for (const int dp : {2, 4}) {
    const Outcome outcome = Train(GetParam(), dp, 1, false);
    EXPECT_EQ(outcome.losses, one.losses) << dp;
    EXPECT_TRUE(outcome.weights == one.weights) << dp;
  }
}

TEST_P(FamilyTrainingTest, TensorParallelRanksGiveTheLossesOfOneProcess) {
  const Outcome one = Train(GetParam(), 1, 1, false);
  struct Layout {
    int dp;
    int tp;
    bool sequence_parallel;
  };
  for (const Layout& l : {Layout{1, 2, false}, {1, 3, true}, {1, 4, false}, {2, 2, true}}) {
    const Outcome outcome = Train(GetParam(), l.dp, l.tp, l.sequence_parallel);
    ASSERT_EQ(outcome.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) {
      // A loss below that of a few labels is a difference of logits, and keeps their rounding.
      const double scale = std::max(2.0, std::abs(one.losses[i]));
      EXPECT_NEAR(outcome.losses[i], one.losses[i], 2e-6 * scale)
          << "dp " << l.dp << " tp " << l.tp << " micro-batch " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTrainingTest, testing::ValuesIn(FamilyCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
