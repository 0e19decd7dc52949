// SPDX-License-Identifier: Apache-2.0
// Loops over an engine that a configuration describes: beside a loop by hand, on layouts of every
// kind, through checkpoints, and used wrongly.
#include "train/loop/configured_engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "autograd/autograd.h"
#include "base/error.h"
#include "core/thread_communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/mesh/unshard.h"
#include "dist/store/parameter_shard.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/elementwise/elementwise.h"
#include "optim/adam/adam.h"
#include "optim/clip.h"
#include "optim/modules/module_parameters.h"
#include "optim/parameter_groups.h"
#include "optim/schedule.h"
#include "train/loop/initialize.h"
#include "train/report/step_report.h"
#include "train/run/run_setup.h"

namespace tessera::train {
namespace {

const nlohmann::json kGpt = {{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 12},
                             {"n_embd", 16},         {"n_layer", 2},     {"n_head", 2}};
constexpr int64_t kMicroBatches = 4;  // of a step, on all ranks

StatusOr<std::unique_ptr<models::Model>> BuildGpt(const nn::BuildContext& build) {
  return models::BuildModel(kGpt, build);
}

// Two rows of 12 tokens, others from step 8 on; the first token of a row is no target.
data::Batch BatchOf(int64_t step, int64_t micro_batch) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 24; ++i) ids.push_back((i * i + micro_batch * 31 + step / 8 * 17) % 61);
  const Tensor tensor = Tensor::FromVector(ids, {2, 12});
  return {.rows = 2,
          .tokens = 24,
          .targets = 22,
          .tensors = {{keys::kInputIds, tensor}, {keys::kLabels, tensor}}};
}

struct Layout {
  std::string name = {};
  int dp = 1;
  int tp = 1;
  int pp = 1;
  int64_t zero = 0;
  bool offload = false;
  std::string dtype = "float32";
  std::string autocast = {};
  double initial_scale = 65536;
  bool clips = true;

  int ranks() const { return dp * tp * pp; }
  int64_t accumulation() const { return kMicroBatches / dp; }
  double tolerance() const { return tp == 1 ? 0 : 2e-5; }  // where sums are split
};
std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

RunConfig ConfigOf(const Layout& layout) {
  RunConfig config;
  config.gradient_accumulation_steps = layout.accumulation();
  config.tp = layout.tp;
  config.pp = layout.pp;
  config.zero = layout.zero;
  config.cpu_offload = layout.offload;
  config.offload_parameters = layout.offload && layout.zero == 3;
  config.dtype = layout.dtype;
  config.autocast = layout.autocast;
  config.initial_scale = layout.initial_scale;
  if (layout.initial_scale != 65536) config.hysteresis = 1;
  config.deterministic = true;
  config.lr = 1e-2;
  config.lr_schedule = "linear";
  config.warmup_steps = 2;
  config.max_steps = 8;
  config.max_grad_norm = layout.clips ? 0.5 : 0;
  config.threads = 1;
  config.seed = 3;
  return config;
}

void Require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(Message(status));
}

struct Outcome {
  std::vector<double> losses;  // of each step
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> weights;
  int64_t skipped = 0;
  double scale = 1;
};

// The losses of all micro-batches of the step on all data-parallel ranks, as their mean.
double LoopStep(ConfiguredEngine& engine, int64_t step) {
  std::vector<double> losses;
  const int64_t mine = engine.gradient_accumulation_steps();
  for (int64_t m = 0; m < mine; ++m) {
    EXPECT_EQ(engine.IsGradientAccumulationBoundary(), m + 1 == mine);
    const Tensor loss = engine(BatchOf(step, engine.mesh().dp()->rank() * mine + m).tensors);
    engine.Backward(loss);
    engine.Step();
    losses.push_back(loss.Item());
  }
  double sum = 0;
  for (const double loss : GatherOverData(losses, engine.mesh())) sum += loss;
  return sum / static_cast<double>(kMicroBatches);
}

double TrainBatchStep(ConfiguredEngine& engine, int64_t step) {
  int64_t m = engine.mesh().dp()->rank() * engine.gradient_accumulation_steps();
  const StatusOr<double> loss =
      engine.TrainBatch([&]() -> StatusOr<data::Batch> { return BatchOf(step, m++); });
  Require(loss.status());
  return *loss;
}

struct Span {
  int64_t end = 5;
  std::string load = {};  // folders
  std::string save = {};
  bool loop = true;  // micro-batch by micro-batch
};

Outcome Train(const Layout& layout, const Span& span) {
  Outcome outcome;
  std::mutex mutex;
  const RunConfig config = ConfigOf(layout);
  RunRanks(layout.ranks(), [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(config, world);
    Require(mesh.status());
    const auto made = Initialize(BuildGpt, config, {.mesh = *mesh});
    Require(made.status());
    ConfiguredEngine& engine = **made;
    if (!span.load.empty()) {
      const auto loaded = engine.LoadCheckpoint(span.load);
      Require(loaded.status());
      EXPECT_NE(loaded->path, "");
      EXPECT_EQ(loaded->client_state, nlohmann::json({{"epoch", 7}}));
    }
    const auto schedule = optim::MakeSchedule(config.schedule_of(8));
    Outcome mine;
    while (engine.global_steps() < span.end) {
      const int64_t step = engine.global_steps();
      EXPECT_EQ(engine.learning_rate(), schedule->At(step + 1 - engine.skipped_steps()));
      mine.losses.push_back(span.loop && layout.pp == 1 ? LoopStep(engine, step)
                                                        : TrainBatchStep(engine, step));
      mine.norms.push_back(engine.grad_norm());
    }
    mine.skipped = engine.skipped_steps();
    mine.scale = engine.loss_scale();
    if (!span.save.empty()) {
      Require(engine.SaveCheckpoint(span.save, "", {{"epoch", 7}}));
    }
    engine.model().VisitParameters([&](nn::Parameter& p) {
      const dist::GatheredScope gathered({p.tensor});
      const Tensor whole = dist::Unshard(p, *mesh);
      if (p.tied_to == nullptr) {
        mine.weights[p.name] = CastCopy(whole, DType::kFloat32).ToVector<float>();
      }
    });
    const std::lock_guard<std::mutex> lock(mutex);
    if (world->rank() == 0) {
      outcome.losses = mine.losses;
      outcome.norms = mine.norms;
      outcome.skipped = mine.skipped;
      outcome.scale = mine.scale;
    }
    outcome.weights.merge(mine.weights);
  });
  return outcome;
}

void ExpectEqual(const Outcome& actual, const Outcome& expected, double relative = 0) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t i = 0; i < actual.losses.size(); ++i) {
    // A mean of rounded means, or a sum that is divided once.
    EXPECT_NEAR(actual.losses[i], expected.losses[i], (relative + 1e-7) * expected.losses[i]) << i;
    if (std::isfinite(expected.norms[i])) {
      EXPECT_NEAR(actual.norms[i], expected.norms[i], relative * expected.norms[i]) << i;
    }
  }
  EXPECT_EQ(actual.skipped, expected.skipped);
  EXPECT_EQ(actual.scale, expected.scale);
  ASSERT_EQ(actual.weights.size(), expected.weights.size());
  for (const auto& [name, values] : expected.weights) {
    const std::vector<float>& mine = actual.weights.at(name);
    ASSERT_EQ(mine.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(mine[i], values[i], relative > 0 ? 1e-3 : 0) << name << " " << i;
    }
  }
}

// What users of other systems write by hand.
Outcome TrainByHand(int64_t steps) {
  const Layout layout;
  const RunConfig config = ConfigOf(layout);
  const auto model = BuildGpt({.seed = 3});
  Require(model.status());
  optim::AdamW optimizer(optim::SplitByDecay(optim::ParametersOf(**model), {.weight_decay = 0.1}),
                         {});
  const auto schedule = optim::MakeSchedule(config.schedule_of(8));
  Outcome outcome;
  for (int64_t step = 0; step < steps; ++step) {
    double sum = 0;
    for (int64_t m = 0; m < kMicroBatches; ++m) {
      models::RunOptions options;
      options.context = {.training = true,
                         .seed = 3,
                         .step = static_cast<uint64_t>(step + 1),
                         .micro_batch = static_cast<uint64_t>(m)};
      const Tensor loss = (*model)->Run(BatchOf(step, m).tensors, options).at(keys::kLoss);
      Backward(Mul(loss, 1.0 / kMicroBatches));
      sum += loss.Item();
    }
    outcome.losses.push_back(sum / kMicroBatches);
    const auto clip = optim::ClipGradNorm(optimizer.parameters(), {.max_norm = 0.5});
    outcome.norms.push_back(clip.norm.Item());
    optimizer.set_learning_rate(schedule->At(step + 1));
    optimizer.Step({.clip_factor = clip.factor});
    optimizer.ZeroGrad();
  }
  for (const auto& [name, tensor] : (*model)->StateDict()) {
    outcome.weights[name] = tensor.ToVector<float>();
  }
  return outcome;
}

TEST(ConfiguredEngineTest, TrainsAsALoopByHandDoes) {
  const Outcome hand = TrainByHand(5);
  EXPECT_LT(hand.losses.back(), hand.losses.front());
  Outcome engine = Train({}, {});
  for (auto it = engine.weights.begin(); it != engine.weights.end();) {
    it = hand.weights.count(it->first) > 0 ? std::next(it) : engine.weights.erase(it);
  }
  // The engine's sums are a balanced tree over the micro-batches.
  ExpectEqual(engine, hand, 2e-6);
}

// --- Layouts -------------------------------------------------------------------------------------

std::string Folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/configured_engine_" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

const Outcome& Reference(const Layout& layout) {
  static auto* references = new std::map<std::string, Outcome>;
  const Layout one = {.dtype = layout.dtype,
                      .autocast = layout.autocast,
                      .initial_scale = layout.initial_scale,
                      .clips = layout.clips};
  const std::string key = Concat(one.dtype, one.autocast, one.initial_scale, one.clips);
  auto found = references->find(key);
  if (found == references->end()) found = references->emplace(key, Train(one, {})).first;
  return found->second;
}

class LayoutTest : public testing::TestWithParam<Layout> {};

TEST_P(LayoutTest, LoopAndTrainBatchGiveTheBitsOfOneProcess) {
  const Layout& layout = GetParam();
  ExpectEqual(Train(layout, {.loop = true}), Reference(layout), layout.tolerance());
  ExpectEqual(Train(layout, {.loop = false}), Reference(layout), layout.tolerance());
}

TEST_P(LayoutTest, ACheckpointGoesOnInAnotherLayout) {
  const Layout& layout = GetParam();
  const std::string folder = Folder(layout.name);
  const Outcome first = Train(layout, {.end = 2, .save = folder});
  const Layout other = {.dp = 2,
                        .zero = layout.zero == 3 ? 1 : 3,
                        .dtype = layout.dtype,
                        .autocast = layout.autocast,
                        .initial_scale = layout.initial_scale,
                        .clips = layout.clips};
  Outcome rest = Train(other, {.load = folder});
  rest.losses.insert(rest.losses.begin(), first.losses.begin(), first.losses.end());
  rest.norms.insert(rest.norms.begin(), first.norms.begin(), first.norms.end());
  ExpectEqual(rest, Reference(layout), layout.tolerance());
}

INSTANTIATE_TEST_SUITE_P(
    All, LayoutTest,
    testing::Values(
        Layout{.name = "one"}, Layout{.name = "dp2", .dp = 2},
        Layout{.name = "dp4_zero1", .dp = 4, .zero = 1},
        Layout{.name = "dp2_zero2_offload", .dp = 2, .zero = 2, .offload = true},
        Layout{.name = "dp4_zero3", .dp = 4, .zero = 3},
        Layout{.name = "zero3_offload", .zero = 3, .offload = true},
        Layout{
            .name = "zero1_offload_unclipped", .dp = 2, .zero = 1, .offload = true, .clips = false},
        Layout{.name = "tp2", .tp = 2},
        Layout{.name = "tp2_dp2_zero2", .dp = 2, .tp = 2, .zero = 2},
        Layout{.name = "pp2", .pp = 2},
        Layout{.name = "pp2_dp2_zero1", .dp = 2, .pp = 2, .zero = 1},
        Layout{.name = "autocast_zero2", .dp = 2, .zero = 2, .autocast = "bfloat16"},
        Layout{.name = "fp16_dp2_zero3_offload",
               .dp = 2,
               .zero = 3,
               .offload = true,
               .dtype = "float16",
               .initial_scale = 1 << 22},
        Layout{.name = "fp16_pp2", .pp = 2, .dtype = "float16", .initial_scale = 1 << 22}),
    [](const auto& info) { return info.param.name; });

TEST(ConfiguredEngineTest, AnOverflowLeavesAStepOutAndHalvesTheScale) {
  const Layout layout = {.dtype = "float16", .initial_scale = 1 << 22};
  const Outcome& all = Reference(layout);
  EXPECT_GE(all.skipped, 1);
  EXPECT_LT(all.skipped, 5);
  EXPECT_EQ(all.scale, std::ldexp(1.0, 22 - static_cast<int>(all.skipped)));
}

// --- One process ---------------------------------------------------------------------------------

class OneEngineTest : public testing::Test {
 protected:
  void Make(const Layout& layout = {}) {
    auto made = Initialize(BuildGpt, ConfigOf(layout));
    Require(made.status());
    engine_ = *std::move(made);
  }
  Tensor Loss(int64_t m, int64_t step = 0) { return (*engine_)(BatchOf(step, m).tensors); }
  std::vector<float> Weights() {
    std::vector<float> all;
    engine_->model().VisitParameters([&](nn::Parameter& p) {
      const dist::GatheredScope gathered({p.tensor});
      const std::vector<float> values =
          CastCopy(p.tensor.Detach(), DType::kFloat32).ToVector<float>();
      all.insert(all.end(), values.begin(), values.end());
    });
    return all;
  }
  template <typename F>
  static std::string Refusal(const F& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  std::unique_ptr<ConfiguredEngine> engine_;
};

TEST_F(OneEngineTest, CallsOutOfOrderAreRefusedAndChangeNothing) {
  Make();
  LoopStep(*engine_, 0);
  const std::vector<float> expected = Weights();
  Make();
  EXPECT_EQ(Refusal([&] { engine_->Step(); }),
            "engine: Step without a forward and a backward pass: engine(batch) and Backward(loss) "
            "come first");
  for (int64_t m = 0; m < kMicroBatches; ++m) {
    const Tensor loss = Loss(m);
    EXPECT_EQ(Refusal([&] { Loss(m); }),
              "engine: the micro-batch before has had no Backward(loss); AbandonStep() drops its "
              "step");
    EXPECT_EQ(Refusal([&] { engine_->Step(); }),
              "engine: Step without a backward pass: Backward(loss) comes first");
    EXPECT_EQ(Refusal([&] { engine_->Backward(loss.Detach()); }),
              "engine: Backward needs a loss of one element that is on the tape");
    engine_->Backward(loss);
    EXPECT_EQ(Refusal([&] { engine_->Backward(loss); }),
              "engine: Backward was called for this micro-batch already: Step() comes next");
    EXPECT_EQ(Refusal([&] { Loss(m); }),
              "engine: the micro-batch before has had no Step(); AbandonStep() drops its step");
    EXPECT_NE(Refusal([&] {
                engine_->SaveCheckpoint("nowhere").IgnoreError();
              }).find("SaveCheckpoint in the midst of a step, which is at micro-batch"),
              std::string::npos);
    EXPECT_NE(Refusal([&] {
                engine_->TrainBatch([] { return BatchOf(0, 0); }).status().IgnoreError();
              }).find("TrainBatch in the midst of a step"),
              std::string::npos);
    engine_->Step();
    EXPECT_EQ(Refusal([&] { engine_->Backward(loss); }),
              "engine: Backward without a forward pass: engine(batch) comes first");
  }
  EXPECT_EQ(engine_->global_steps(), 1);
  EXPECT_EQ(Weights(), expected);
}

TEST_F(OneEngineTest, APassThatThrowsTakesTheStepBackToItsBeginning) {
  for (const Layout& layout :
       {Layout{}, Layout{.zero = 1}, Layout{.zero = 2, .offload = true, .clips = false},
        Layout{.zero = 3}, Layout{.zero = 3, .offload = true}}) {
    Make(layout);
    LoopStep(*engine_, 0);
    LoopStep(*engine_, 1);
    const std::vector<float> expected = Weights();
    Make(layout);
    LoopStep(*engine_, 0);
    for (int64_t m = 0; m < 3; ++m) {
      engine_->Backward(Loss(m, 9));
      engine_->Step();
    }
    models::Bundle bad = BatchOf(0, 0).tensors;
    bad.set(keys::kInputIds, Full({2, 12}, 61, DType::kInt64));
    EXPECT_NE(Refusal([&] { (*engine_)(bad); }), "nothing was refused");
    const Tensor dropped = Loss(0, 9);  // and one that its caller drops
    engine_->AbandonStep();
    int64_t m = 0;
    const auto fails = [&]() -> StatusOr<data::Batch> {
      if (m++ < 2) return BatchOf(9, m);
      return DataLoss("file.jsonl:3: not valid JSON");
    };
    EXPECT_EQ(Message(engine_->TrainBatch(fails).status()), "file.jsonl:3: not valid JSON");
    LoopStep(*engine_, 1);
    EXPECT_EQ(Weights(), expected) << "zero " << layout.zero << " offload " << layout.offload;
    EXPECT_EQ(engine_->global_steps(), 2);
  }
}

TEST_F(OneEngineTest, WithoutATapeAPassIsAnEvaluationAtAnyTime) {
  for (const Layout& layout : {Layout{}, Layout{.zero = 3}}) {
    Make(layout);
    LoopStep(*engine_, 0);
    const std::vector<float> expected = Weights();
    Make(layout);
    const double before = engine_->EvalBatch(BatchOf(0, 0).tensors).at(keys::kLoss).Item();
    for (int64_t m = 0; m < kMicroBatches; ++m) {
      const Tensor loss = Loss(m);
      {
        const NoGrad no_grad;
        const Tensor evaluated = Loss(0);
        EXPECT_FALSE(RequiresGrad(evaluated));
        EXPECT_EQ(evaluated.Item(), before);  // no dropout, and the parameters are as they were
      }
      engine_->Backward(loss);
      EXPECT_EQ(engine_->EvalBatch(BatchOf(0, 0).tensors).at(keys::kLoss).Item(), before);
      engine_->Step();
    }
    EXPECT_EQ(Weights(), expected);
    EXPECT_NE(engine_->EvalBatch(BatchOf(0, 0).tensors).at(keys::kLoss).Item(), before);
  }
}

// Micro-batches of 22 and 2 targets.
TEST_F(OneEngineTest, TrainBatchCountsTargetsAndTheLoopMicroBatches) {
  const auto batch = [](int64_t m) {
    data::Batch made = BatchOf(0, m);
    if (m % 2 == 0) return made;
    std::vector<int64_t> labels(24, data::kIgnoreLabel);
    labels[5] = labels[20] = 3;
    made.targets = 2;
    made.tensors.set(keys::kLabels, Tensor::FromVector(labels, {2, 12}));
    return made;
  };
  Make();
  std::vector<double> losses;
  for (int64_t m = 0; m < kMicroBatches; ++m) {
    const Tensor loss = (*engine_)(batch(m).tensors);
    losses.push_back(loss.Item());
    engine_->Backward(loss);
    engine_->Step();
  }
  const double loop_norm = engine_->grad_norm();
  Make();
  int64_t m = 0;
  const StatusOr<double> all =
      engine_->TrainBatch([&]() -> StatusOr<data::Batch> { return batch(m++); });
  Require(all.status());
  EXPECT_NEAR(*all, (22 * (losses[0] + losses[2]) + 2 * (losses[1] + losses[3])) / 48, 1e-6);
  EXPECT_GT(std::abs(engine_->grad_norm() - loop_norm), 1e-3);
  const auto none = [&]() -> StatusOr<data::Batch> {
    data::Batch made = BatchOf(0, 0);
    made.targets = 0;
    return made;
  };
  EXPECT_EQ(Message(engine_->TrainBatch(none).status()),
            "step 2: no batch of it has targets (data::Batch::targets)");
}

TEST_F(OneEngineTest, GradientsThatAreNoNumbersStopTheLoopBeforeTheUpdate) {
  Make();
  const std::vector<float> before = Weights();
  for (int64_t m = 0; m < kMicroBatches; ++m) {
    engine_->Backward(Mul(Loss(m), m == 2 ? std::nan("") : 1.0));
    if (m + 1 < kMicroBatches) engine_->Step();
  }
  EXPECT_EQ(Refusal([&] { engine_->Step(); }),
            "engine: step 1: the gradients are not finite; parameters are as they were "
            "(on_non_finite: skip would continue)");
  EXPECT_EQ(Weights(), before);
  EXPECT_EQ(engine_->global_steps(), 0);
  LoopStep(*engine_, 0);
  EXPECT_TRUE(engine_->was_step_applied());
}

TEST_F(OneEngineTest, ACheckpointWithATagIsLoadedByIt) {
  Make();
  const std::string folder = Folder("tags");
  EXPECT_EQ(engine_->LoadCheckpoint(folder)->path, "");
  LoopStep(*engine_, 0);
  Require(engine_->SaveCheckpoint(folder, "best", {{"score", 0.5}}));
  const std::vector<float> best = Weights();
  LoopStep(*engine_, 1);
  EXPECT_EQ(engine_->LoadCheckpoint(folder)->path, "");  // none without a tag
  EXPECT_EQ(engine_->LoadCheckpoint(folder, "best")->client_state->at("score"), 0.5);
  EXPECT_EQ(Weights(), best);
  EXPECT_EQ(engine_->global_steps(), 1);
  EXPECT_EQ(Message(engine_->SaveCheckpoint(folder, "a/b")),
            "tag 'a/b' is not the name of a directory");
  EXPECT_EQ(Message(engine_->SaveCheckpoint(folder, "checkpoint-7")),
            "tag 'checkpoint-7' is the name of another step's checkpoint; this one's is "
            "checkpoint-1");
  EXPECT_NE(Message(engine_->LoadCheckpoint(folder, "worst").status()).find("worst"),
            std::string::npos);
  // The newest that verifies.
  Require(engine_->SaveCheckpoint(folder));
  LoopStep(*engine_, 1);
  Require(engine_->SaveCheckpoint(folder));
  std::filesystem::resize_file(folder + "/checkpoint-2/checkpoint.json", 10);
  const auto loaded = engine_->LoadCheckpoint(folder);
  EXPECT_EQ(loaded->path, dist::CheckpointPath(folder, 1));
  EXPECT_EQ(loaded->passed_over.size(), 1u);
  EXPECT_EQ(Weights(), best);
}

// The losses of three steps on two ranks; with `fails`, all of them fail in the midst of the
// second.
std::vector<double> TrainOnTwoRanks(const Layout& layout, bool fails) {
  std::vector<double> losses;
  const RunConfig config = ConfigOf(layout);
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const auto made = Initialize(BuildGpt, config, {.world = world});
    Require(made.status());
    ConfiguredEngine& engine = **made;
    std::vector<double> mine = {LoopStep(engine, 0)};
    if (fails) {
      engine.Backward(engine(BatchOf(9, world->rank()).tensors));
      engine.Step();
      models::Bundle bad = BatchOf(0, 0).tensors;
      bad.set(keys::kInputIds, Full({2, 12}, 61, DType::kInt64));
      EXPECT_THROW(engine(bad), Error);
      engine.Backward(engine(BatchOf(9, 2 + world->rank()).tensors));
      engine.Step();
      engine.AbandonStep();
    }
    for (int64_t step = 1; step < 3; ++step) mine.push_back(LoopStep(engine, step));
    if (world->rank() == 0) losses = mine;
  });
  return losses;
}

TEST(ConfiguredEngineTest, RanksThatFailAlikeGoOnAlike) {
  for (const Layout& layout :
       {Layout{.dp = 2}, Layout{.dp = 2, .zero = 1}, Layout{.dp = 2, .zero = 2},
        Layout{.dp = 2, .zero = 2, .offload = true}, Layout{.dp = 2, .zero = 3},
        Layout{.dp = 2, .zero = 3, .offload = true}}) {
    EXPECT_EQ(TrainOnTwoRanks(layout, true), TrainOnTwoRanks(layout, false))
        << "zero " << layout.zero << " offload " << layout.offload;
  }
}

TEST(ConfiguredEngineTest, ARankThatFailsAloneLeavesNobodyWaiting) {
  for (const int64_t zero : {0, 2, 3}) {
    const Layout layout = {.dp = 2, .zero = zero};
    const auto train = [&] {
      RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
        const auto made = Initialize(BuildGpt, ConfigOf(layout), {.world = world});
        Require(made.status());
        LoopStep(**made, 0);
        models::Bundle batch = BatchOf(0, 0).tensors;
        if (world->rank() == 1) batch.set(keys::kInputIds, Full({2, 12}, 61, DType::kInt64));
        for (int m = 0; m < 2; ++m) {
          (*made)->Backward((**made)(batch));
          (*made)->Step();
        }
      });
    };
    EXPECT_THROW(train(), std::exception) << zero;
  }
}

TEST(ConfiguredEngineTest, APipelineTakesWholeSteps) {
  const Layout layout = {.pp = 2};
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const auto mesh = MakeMesh(ConfigOf(layout), world);
    const auto engine = Initialize(BuildGpt, ConfigOf(layout), {.mesh = *mesh});
    Require(engine.status());
    try {
      (**engine)(BatchOf(0, 0).tensors);
      ADD_FAILURE() << "nothing was refused";
    } catch (const Error& error) {
      EXPECT_STREQ(
          error.what(),
          "engine: a pipeline takes whole steps: TrainBatch, or a booster's ExecutePipeline");
    }
    EXPECT_GT((*engine)->EvalBatch(BatchOf(0, 0).tensors).at(keys::kLoss).Item(), 3);
    EXPECT_GT(TrainBatchStep(**engine, 0), 3);
  });
}

}  // namespace
}  // namespace tessera::train
