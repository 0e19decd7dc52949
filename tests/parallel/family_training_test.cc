// SPDX-License-Identifier: Apache-2.0
// Every model family, trained for ten steps of four micro-batches with dropout and uneven targets:
// on two and four data-parallel ranks the bits of one process (deterministic sums), with tensor and
// sequence parallelism the same losses to 2e-6.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "dist/store/parameter_store.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
#include "optim/adam/adam.h"
#include "optim/modules/module_parameters.h"
#include "optim/parameter_groups.h"
#include "tests/parallel/family_cases.h"

namespace tessera {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kMicroBatches = 4;

struct Layout {
  int dp = 1;
  int tp = 1;
  bool sequence_parallel = false;
  int zero = 0;
};
std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << "dp " << l.dp << " tp " << l.tp << (l.sequence_parallel ? " sequence" : "")
             << " zero " << l.zero;
}

struct Precision {
  DType dtype = DType::kFloat32;
  DType products = DType::kFloat32;  // of float32 operands
};

struct Outcome {
  std::vector<double> losses;  // of each micro-batch, in order
  std::map<std::string, std::vector<float>> weights;
  std::vector<std::vector<int64_t>> texts;  // that the trained model writes, if it does
};

// Two texts, as the family's prompts are.
std::vector<std::vector<int64_t>> Prompts(const nlohmann::json& config) {
  if (!config.contains("gmask_token_id")) return {{5, 6, 7}, {8, 9}};
  const int64_t blank = config["gmask_token_id"];
  return {{5, 6, 7, blank}, {8, 9, blank}};
}

// What the model writes in the process that trained it. Where ranks share parameters, each has
// other texts; in the end all are put together.
std::vector<std::vector<int64_t>> Write(const models::Model& model, const Precision& precision,
                                        const dist::Mesh& mesh, bool in_step) {
  const AutocastScope autocast(precision.products);
  models::GenerateOptions options;
  if (in_step) {
    options.largest_over_ranks = [&](int64_t mine) {
      const Tensor largest = Tensor::FromVector<int64_t>({mine}, {1});
      mesh.dp()->AllReduce(largest, ReduceOp::kMax)->Wait();
      return *largest.data<int64_t>();
    };
  }
  std::vector<std::vector<int64_t>> texts;
  const auto prompts = Prompts(model.config());
  for (size_t i = 0; i < prompts.size(); ++i) {
    models::GenerationConfig config;
    // Another rank writes a text of another length meanwhile.
    const int elsewhere = (static_cast<int>(i) + mesh.dp()->rank()) % 2;
    config.max_new_tokens = elsewhere == static_cast<int>(i) ? 5 : 3;
    const auto written = models::Generate(model, {prompts[i]}, config, options);
    if (!written.ok()) throw std::runtime_error(Message(written.status()));
    std::vector<int64_t> ids = (*written)[0].ids;
    ids.resize(3);
    texts.push_back(std::move(ids));
  }
  return texts;
}

Outcome Train(const FamilyCase& family, const Layout& layout, const Precision& precision = {},
              int steps = kSteps) {
  Outcome outcome;
  const int dp = layout.dp;
  RunRanks(dp * layout.tp, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.tp = layout.tp});
    auto model = models::BuildModel(family.config, {.dtype = precision.dtype,
                                                    .seed = 11,
                                                    .tensor_parallel = mesh.tp(),
                                                    .sequence_parallel = layout.sequence_parallel});
    if (!model.ok()) throw std::runtime_error(Message(model.status()));
    // Adam's first step moves a weight by lr times the sign of its gradient, and a gradient that
    // happens to be zero but for rounding has another sign on another layout. A larger epsilon
    // leaves such weights where they are.
    const auto make = [](std::vector<optim::ParameterGroup> groups) {
      return std::make_unique<optim::AdamW>(std::move(groups),
                                            optim::AdamOptions{.lr = 1e-3, .eps = 1e-4});
    };
    dist::ZeroOptions options{.stage = layout.zero};
    if (layout.zero < 3) options.bucket_cap_mb = 0.01;
    options.deterministic = true;
    options.find_unused_parameters = true;
    dist::ParameterStore store(
        **model, optim::SplitByDecay(optim::ParametersOf(**model), {.weight_decay = 0.1}), make,
        dist::StoreGroupsOf(mesh), options);
    const int64_t mine = kMicroBatches / dp;
    for (int step = 0; step < steps; ++step) {
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
        Tensor loss;
        {
          const AutocastScope autocast(precision.products);
          loss = (*model)
                     ->Run(family.inputs(static_cast<uint64_t>(step) * kMicroBatches + number),
                           options)
                     .at(keys::kLoss);
        }
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
    if ((*model)->num_cache_layers() > 0) {
      const auto texts = Write(**model, precision, mesh, layout.zero == 3);
      if (world->rank() == 0) outcome.texts = texts;
    }
    if (world->rank() != 0 || layout.zero == 3) return;
    for (const auto& [name, t] : (*model)->StateDict()) outcome.weights[name] = t.ToVector<float>();
  });
  return outcome;
}

class FamilyTrainingTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyTrainingTest, DataParallelRanksGiveTheBitsOfOneProcess) {
  const Outcome one = Train(GetParam(), {});
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps * kMicroBatches));
  for (const int dp : {2, 4}) {
    const Outcome outcome = Train(GetParam(), {.dp = dp});
    EXPECT_EQ(outcome.losses, one.losses) << dp;
    EXPECT_TRUE(outcome.weights == one.weights) << dp;
  }
}

TEST_P(FamilyTrainingTest, TensorParallelRanksGiveTheLossesOfOneProcess) {
  const Outcome one = Train(GetParam(), {});
  for (const Layout& l : {Layout{1, 2, false}, {1, 3, true}, {1, 4, false}, {2, 2, true}}) {
    const Outcome outcome = Train(GetParam(), l);
    ASSERT_EQ(outcome.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) {
      // A loss below that of a few labels is a difference of logits, and keeps their rounding.
      const double scale = std::max(2.0, std::abs(one.losses[i]));
      EXPECT_NEAR(outcome.losses[i], one.losses[i], 2e-6 * scale) << l << " micro-batch " << i;
    }
  }
}

// Every precision on every layout: a few steps near those of float32 in one process, and texts
// written by the process that trained; of float32 the same texts.
TEST_P(FamilyTrainingTest, EveryPrecisionTrainsAndWritesOnEveryLayout) {
  constexpr int kFew = 2;
  const Outcome one = Train(GetParam(), {}, {}, kFew);
  const bool writes = !one.texts.empty();
  for (const Precision& precision :
       {Precision{}, Precision{.dtype = DType::kBFloat16}, Precision{.dtype = DType::kFloat16},
        Precision{.products = DType::kBFloat16}, Precision{.products = DType::kFloat16}}) {
    const bool exact = precision.dtype == DType::kFloat32 && precision.products == DType::kFloat32;
    for (const Layout& layout :
         {Layout{}, Layout{.dp = 2, .zero = 1}, Layout{.dp = 2, .zero = 2},
          Layout{.dp = 2, .zero = 3}, Layout{.tp = 2}, Layout{.tp = 2, .sequence_parallel = true},
          Layout{.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 3}}) {
      SCOPED_TRACE(testing::Message()
                   << layout << ", " << precision.dtype << ", products " << precision.products);
      const Outcome outcome = Train(GetParam(), layout, precision, kFew);
      ASSERT_EQ(outcome.losses.size(), one.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i) {
        const double scale = std::max(2.0, std::abs(one.losses[i]));
        EXPECT_NEAR(outcome.losses[i], one.losses[i], (exact ? 4e-6 : 0.05) * scale) << i;
      }
      ASSERT_EQ(outcome.texts.size(), writes ? 2 : 0);
      if (exact) {
        EXPECT_EQ(outcome.texts, one.texts);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTrainingTest, testing::ValuesIn(FamilyCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera
