// SPDX-License-Identifier: Apache-2.0
// Boosted training beside a loop by hand, under every plugin, with and without ExecutePipeline;
// what is saved and loaded; what is refused.
#include "train/boost/booster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/thread_communicator.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/view/view.h"
#include "optim/adam/adam.h"
#include "optim/modules/module_parameters.h"
#include "optim/parameter_groups.h"
#include "train/report/step_report.h"

namespace tessera::train {
namespace {

const nlohmann::json kGpt = {{"model_type", "gpt2"}, {"vocab_size", 61},  {"n_positions", 12},
                             {"n_embd", 16},         {"n_layer", 2},      {"n_head", 2},
                             {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}};
constexpr int64_t kRows = 8;  // of a step, on all ranks
constexpr int64_t kSteps = 4;

StatusOr<std::unique_ptr<models::Model>> BuildGpt(const nn::BuildContext& build) {
  return models::BuildModel(kGpt, build);
}

// Rows [begin, begin + rows) of a step's.
data::Batch BatchOf(int64_t begin, int64_t rows) {
  std::vector<int64_t> ids;
  for (int64_t r = begin; r < begin + rows; ++r) {
    for (int64_t i = 0; i < 12; ++i) ids.push_back((i * i + r * 13) % 61);
  }
  const Tensor tensor = Tensor::FromVector(ids, {rows, 12});
  return {.rows = rows, .tensors = {{keys::kInputIds, tensor}}};
}

// Of the next token, a mean, halved: no model's own.
Tensor HalfLoss(const models::Bundle& outputs, const models::Bundle& batch) {
  const Tensor logits = Slice(outputs.at(keys::kLogits), 1, 0, 11);
  const Tensor next = Slice(batch.at(keys::kInputIds), 1, 1, 11).ContiguousCopy();
  return Mul(CrossEntropy(logits, next, {.reduction = LossReduction::kMean}), 0.5);
}

optim::ScheduleConfig Rates() { return optim::CosineAnnealingWarmupLR(1e-2, 10, 2); }

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(Message(status));
}

// What users of other systems write by hand, in one process.
const std::vector<double>& LossesByHand() {
  static const auto* losses = [] {
    auto* all = new std::vector<double>;
    const auto model = BuildGpt({.seed = 5});
    Require(model.status());
    optim::AdamW optimizer(
        optim::SplitByDecay(optim::ParametersOf(**model), {.weight_decay = 0.01}), {});
    const auto schedule = optim::MakeSchedule(Rates());
    for (int64_t step = 0; step < kSteps; ++step) {
      const models::Bundle batch = BatchOf(0, kRows).tensors;
      models::RunOptions options;
      options.context.training = true;
      const Tensor loss = HalfLoss((*model)->Run(batch, options), batch);
      tessera::Backward(loss);
      optimizer.set_learning_rate(schedule->At(step + 1));
      optimizer.Step();
      optimizer.ZeroGrad();
      all->push_back(loss.Item());
    }
    return all;
  }();
  return *losses;
}

struct Case {
  std::string name;
  int ranks = 1;
  Plugin plugin = DataParallelPlugin{};
  bool pipeline = false;  // by ExecutePipeline
  nlohmann::json run = nlohmann::json::object();
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

// One step; the mean over the data-parallel ranks.
double StepOf(const Case& c, const Booster& booster, Boosted& boosted) {
  auto& [model, optimizer, criterion, loader, schedule] = boosted;
  const dist::Mesh& mesh = booster.mesh();
  const int64_t rows = kRows / mesh.dp()->size();
  const data::Batch batch = BatchOf(mesh.dp()->rank() * rows, rows);
  double mine = 0;
  if (c.pipeline) {
    const auto done = booster.ExecutePipeline([&]() -> StatusOr<data::Batch> { return batch; },
                                              model, criterion, optimizer, {.outputs = true});
    Require(done.status());
    mine = done->loss;
    const bool last = mesh.pp()->rank() + 1 == mesh.pp()->size();
    EXPECT_EQ(done->outputs.size(), last ? 4u : 0u);
    if (last) {
      EXPECT_EQ(done->outputs[0].at(keys::kLogits).shape(), Shape({rows / 4, 12, 61}));
      EXPECT_FALSE(RequiresGrad(done->outputs[0].at(keys::kLogits)));
    }
  } else {
    const int64_t passes = model.engine().gradient_accumulation_steps();
    for (int64_t m = 0; m < passes; ++m) {
      const models::Bundle part =
          BatchOf(mesh.dp()->rank() * rows + m * rows / passes, rows / passes).tensors;
      const Tensor loss = criterion(model(part), part);
      if (m == 0) optimizer.ZeroGrad();  // as loops have it; there is nothing to drop
      booster.Backward(loss, optimizer);
      mine += loss.Item() / static_cast<double>(passes);
    }
  }
  optimizer.Step();
  schedule.Step();
  double sum = 0;
  for (const double loss : GatherOverData({mine}, mesh)) sum += loss;
  return sum / mesh.dp()->size();
}

StatusOr<Boosted> Boost(Booster& booster) {
  return booster.Boost(BuildGpt, {.name = "HybridAdam", .lr = 1e-2, .weight_decay = 0.01}, HalfLoss,
                       {}, Rates());
}

nlohmann::json RunKeys(const Case& c) {
  nlohmann::json run = c.run;
  run["seed"] = 5;
  run["threads"] = 1;
  return run;
}

class PluginTest : public testing::TestWithParam<Case> {};

TEST_P(PluginTest, TrainsAsALoopByHandDoes) {
  const Case& c = GetParam();
  std::vector<double> losses;
  std::mutex mutex;
  RunRanks(c.ranks, [&](const std::shared_ptr<Communicator>& world) {
    Booster booster(c.plugin, {.world = world, .run = RunKeys(c)});
    StatusOr<Boosted> boosted = Boost(booster);
    Require(boosted.status());
    for (int64_t step = 0; step < kSteps; ++step) {
      const double loss = StepOf(c, booster, *boosted);
      const std::lock_guard<std::mutex> lock(mutex);
      if (world->rank() == 0) losses.push_back(loss);
    }
  });
  ASSERT_EQ(losses.size(), LossesByHand().size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], LossesByHand()[i], 2e-5) << i;
  }
  EXPECT_LT(losses.back(), losses.front() - 0.05);
}

// What it saves continues under another plugin.
TEST_P(PluginTest, GoesOnFromWhatItSaved) {
  const Case& c = GetParam();
  const std::string folder = testing::TempDir() + "/booster_" + c.name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  RunRanks(c.ranks, [&](const std::shared_ptr<Communicator>& world) {
    Booster booster(c.plugin, {.world = world, .run = RunKeys(c)});
    StatusOr<Boosted> boosted = Boost(booster);
    Require(boosted.status());
    for (int64_t step = 0; step < 2; ++step) StepOf(c, booster, *boosted);
    Require(booster.SaveModel(boosted->model, folder + "/model"));
    Require(booster.SaveOptimizer(boosted->optimizer, folder + "/optimizer"));
    Require(booster.SaveLrScheduler(boosted->schedule, folder + "/schedule.json"));
  });
  const Case other = {.name = "", .ranks = 2, .plugin = GeminiPlugin{.precision = "fp32"}};
  for (const Case& next : {c, other}) {
    RunRanks(next.ranks, [&](const std::shared_ptr<Communicator>& world) {
      nlohmann::json run = RunKeys(next);
      run["seed"] = 77;  // all weights come from the folder
      Booster booster(next.plugin, {.world = world, .run = run});
      StatusOr<Boosted> boosted = Boost(booster);
      Require(boosted.status());
      Require(booster.LoadModel(boosted->model, folder + "/model"));
      Require(booster.LoadOptimizer(boosted->optimizer, folder + "/optimizer"));
      Require(booster.LoadLrScheduler(boosted->schedule, folder + "/schedule.json"));
      EXPECT_EQ(boosted->schedule.steps(), 2);
      EXPECT_EQ(boosted->model.engine().global_steps(), 2);
      for (size_t step = 2; step < kSteps; ++step) {
        EXPECT_NEAR(StepOf(next, booster, *boosted), LossesByHand()[step], 2e-5) << step;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PluginTest,
    testing::Values(
        Case{.name = "ddp2", .ranks = 2},
        Case{.name = "ddp2_accumulates",
             .ranks = 2,
             .run = {{"gradient_accumulation_steps", 2}, {"deterministic", true}}},
        Case{.name = "zero1", .ranks = 2, .plugin = LowLevelZeroPlugin{.precision = "fp32"}},
        Case{.name = "zero2_offload",
             .ranks = 2,
             .plugin = LowLevelZeroPlugin{.stage = 2,
                                          .precision = "fp32",
                                          .cpu_offload = true,
                                          .more = {{"reduce_bucket_size_in_m", 1}}}},
        Case{.name = "gemini",
             .ranks = 2,
             .plugin = GeminiPlugin{.offload_optim_frac = 1,
                                    .offload_param_frac = 1,
                                    .precision = "fp32"}},
        Case{.name = "gemini_alone", .plugin = GeminiPlugin{.precision = "fp32"}},
        Case{.name = "tp2",
             .ranks = 2,
             .plugin = HybridParallelPlugin{.tp_size = 2,
                                            .precision = "fp32",
                                            .enable_sequence_parallelism = true}},
        Case{.name = "tp2_dp2_zero1",
             .ranks = 4,
             .plugin = HybridParallelPlugin{.tp_size = 2, .zero_stage = 1, .precision = "fp32"}},
        Case{.name = "pp2",
             .ranks = 2,
             .plugin =
                 HybridParallelPlugin{.pp_size = 2, .precision = "fp32", .num_microbatches = 4},
             .pipeline = true},
        Case{.name = "pp2_tp2_zero_bubble",
             .ranks = 4,
             .plugin = HybridParallelPlugin{.tp_size = 2,
                                            .pp_size = 2,
                                            .precision = "fp32",
                                            .num_microbatches = 4,
                                            .pp_style = "zb-h1"},
             .pipeline = true},
        Case{.name = "pp2_dp2_by_rows",
             .ranks = 4,
             .plugin = HybridParallelPlugin{.pp_size = 2,
                                            .zero_stage = 1,
                                            .precision = "fp32",
                                            .microbatch_size = 1},
             .pipeline = true},
        Case{.name = "execute_pipeline_without_stages",
             .plugin = HybridParallelPlugin{.precision = "fp32", .num_microbatches = 4},
             .pipeline = true}),
    [](const auto& info) { return info.param.name; });

// --- One rank ------------------------------------------------------------------------------------

RunConfig ConfigOf(const Plugin& plugin) {
  RunConfig config;
  Require(plugin.ApplyTo(&config));
  return config;
}

TEST(PluginsTest, ArgumentsBecomeKeysOfARun) {
  const RunConfig hybrid = ConfigOf(HybridParallelPlugin{.tp_size = 2,
                                                         .zero_stage = 1,
                                                         .microbatch_size = 8,
                                                         .pp_style = "interleaved",
                                                         .max_norm = 0.5,
                                                         .more = {{"ddp_bucket_cap_mb", 50}}});
  EXPECT_EQ(hybrid.tp, 2);
  EXPECT_EQ(hybrid.ep, 1);
  EXPECT_EQ(ConfigOf(HybridParallelPlugin{.ep_size = 4}).ep, 4);
  EXPECT_EQ(hybrid.zero, 1);
  EXPECT_EQ(hybrid.batch_size, 8);
  EXPECT_TRUE(hybrid.IsSet("batch_size"));  // though it is the default
  EXPECT_EQ(hybrid.schedule, "interleaved");
  EXPECT_EQ(hybrid.max_grad_norm, 0.5);
  EXPECT_EQ(hybrid.bucket_cap_mb, 50);
  EXPECT_EQ(hybrid.dtype, "float16");
  const RunConfig low = ConfigOf(LowLevelZeroPlugin{.precision = "bf16", .cpu_offload = true});
  EXPECT_EQ(low.zero, 1);
  EXPECT_EQ(low.dtype, "bfloat16");
  EXPECT_TRUE(low.cpu_offload);
  EXPECT_EQ(low.max_grad_norm, 0);
  EXPECT_TRUE(low.Validate().ok());
  const RunConfig gemini = ConfigOf(GeminiPlugin{.offload_optim_frac = 0.5});
  EXPECT_EQ(gemini.zero, 3);
  EXPECT_EQ(gemini.offload_fraction, 0.5);
  EXPECT_EQ(ConfigOf(GeminiPlugin{.shard_param_frac = 0}).zero, 2);
  EXPECT_EQ(ConfigOf(DataParallelPlugin{.static_graph = true}).static_graph, true);
}

TEST(PluginsTest, RefusesWhatItDoesNotUnderstand) {
  const auto refusal = [](const Plugin& plugin) {
    Booster booster(plugin, {.world = SingleProcessCommunicator()});
    return Message(booster.Boost(BuildGpt, {}).status());
  };
  EXPECT_EQ(refusal(HybridParallelPlugin{.more = {{"tp_sise", 2}}}),
            "HybridParallelPlugin: unknown key 'tp_sise'; did you mean 'tp_size'?");
  EXPECT_NE(
      refusal(HybridParallelPlugin{.more = {{"custom_policy", "mine"}}}).find("'custom_policy'"),
      std::string::npos);
  EXPECT_NE(refusal(LowLevelZeroPlugin{.precision = "fp8"}).find("'precision'"), std::string::npos);
  EXPECT_NE(refusal(LowLevelZeroPlugin{.precision = "bf16", .initial_scale = 1024})
                .find("initial_scale is set, which needs dtype float16"),
            std::string::npos);
  EXPECT_NE(refusal(HybridParallelPlugin{.tp_size = 3}).find("3"), std::string::npos);
  Booster booster(DataParallelPlugin{},
                  {.world = SingleProcessCommunicator(), .run = {{"data", "book.txt"}}});
  EXPECT_EQ(Message(booster.Boost(BuildGpt, {}).status()),
            "data is set, which means nothing to an engine: it is given its batches");
  Booster scheduled(DataParallelPlugin{},
                    {.world = SingleProcessCommunicator(), .run = {{"warmup_steps", 10}}});
  EXPECT_EQ(Message(scheduled.Boost(BuildGpt, {}).status()),
            "warmup_steps is set, but the caller gives the learning rate");
}

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(BoosterTest, CallsOutOfOrderAreRefused) {
  Booster booster(DataParallelPlugin{}, {.world = SingleProcessCommunicator(),
                                         .run = {{"gradient_accumulation_steps", 2}}});
  auto boosted = Boost(booster);
  Require(boosted.status());
  auto& [model, optimizer, criterion, loader, schedule] = *boosted;
  const models::Bundle batch = BatchOf(0, 2).tensors;
  EXPECT_EQ(Refusal([&] { optimizer.Step(); }), "optimizer: Step after 0 of 2 backward passes");
  booster.Backward(criterion(model(batch), batch), optimizer);
  EXPECT_EQ(Refusal([&] { optimizer.Step(); }), "optimizer: Step after 1 of 2 backward passes");
  const Tensor second = criterion(model(batch), batch);
  EXPECT_EQ(Refusal([&] { optimizer.ZeroGrad(); }),
            "optimizer: ZeroGrad between the passes of micro-batch 2 of 2");
  booster.Backward(second, optimizer);
  EXPECT_EQ(Refusal([&] { booster.Backward(second, optimizer); }),
            "engine: Backward was called for this micro-batch already: Step() comes next");
  optimizer.ZeroGrad();
  EXPECT_EQ(Refusal([&] { optimizer.Step(); }), "optimizer: Step after 0 of 2 backward passes");
  EXPECT_EQ(model.engine().global_steps(), 0);
}

TEST(BoosterTest, ABatchMustDivideIntoMicroBatches) {
  Booster booster(HybridParallelPlugin{.precision = "fp32", .num_microbatches = 3},
                  {.world = SingleProcessCommunicator()});
  auto boosted = Boost(booster);
  Require(boosted.status());
  const auto run = [&](const data::Batch& batch) {
    return Message(booster
                       .ExecutePipeline([&]() -> StatusOr<data::Batch> { return batch; },
                                        boosted->model, HalfLoss, boosted->optimizer)
                       .status());
  };
  EXPECT_EQ(run(BatchOf(0, 8)),
            "execute_pipeline: a batch of 8 rows does not divide into 3 micro-batches");
  data::Batch uneven = BatchOf(0, 6);
  uneven.tensors.set(keys::kLabels, BatchOf(0, 5).at(keys::kInputIds));
  EXPECT_EQ(run(uneven), "execute_pipeline: 'labels' has 5 rows, others have 6");
  EXPECT_EQ(run(BatchOf(0, 6)), "");
  boosted->optimizer.Step();
}

// Two models of one booster have their own losses.
TEST(BoosterTest, BoostsSeveralModels) {
  Booster booster(HybridParallelPlugin{.precision = "fp32", .num_microbatches = 2},
                  {.world = SingleProcessCommunicator(), .run = {{"seed", 5}}});
  auto first = Boost(booster);
  auto second = Boost(booster);
  Require(first.status());
  Require(second.status());
  for (Boosted* boosted : {&*first, &*second}) {
    const auto done = booster.ExecutePipeline([] { return BatchOf(0, kRows); }, boosted->model,
                                              HalfLoss, boosted->optimizer);
    Require(done.status());
    EXPECT_NEAR(done->loss, LossesByHand()[0], 1e-5);
    boosted->optimizer.Step();
  }
}

// Without a criterion the loss is the model's, and under NoGrad a pass is an evaluation.
TEST(BoosterTest, TheModelsOwnLossServes) {
  Booster booster(GeminiPlugin{.precision = "fp32"}, {.world = SingleProcessCommunicator()});
  auto boosted = booster.Boost(BuildGpt, {.lr = 1e-2});
  Require(boosted.status());
  auto& [model, optimizer, criterion, loader, schedule] = *boosted;
  models::Bundle batch = BatchOf(0, 4).tensors;
  batch.set(keys::kLabels, batch.at(keys::kInputIds));
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    {
      const NoGrad no_grad;
      losses.push_back(criterion(model(batch), batch).Item());
    }
    booster.Backward(criterion(model(batch), batch), optimizer);
    optimizer.Step();
  }
  EXPECT_LT(losses.back(), losses.front() - 0.1);
  // The engine's whole steps count micro-batches alike, too.
  double evaluated = 0;
  {
    const NoGrad no_grad;
    evaluated = criterion(model(batch), batch).Item();
  }
  const StatusOr<double> whole = model.engine().TrainBatch(
      [&]() -> StatusOr<data::Batch> { return data::Batch{.rows = 4, .tensors = batch}; });
  Require(whole.status());
  EXPECT_NEAR(*whole, evaluated, 1e-5);
}

}  // namespace
}  // namespace tessera::train
