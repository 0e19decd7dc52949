// SPDX-License-Identifier: Apache-2.0
// Pipelines: every model family, cut into stages and run by every schedule, trains to the bits of
// one process: losses, gradient norms and weights after several steps of AdamW, with dropout and
// uneven targets. So do recomputation, cuts at odd places, several chunks on one rank, and data
// parallelism with deterministic sums; tensor parallelism splits sums and agrees to 2e-6. The
// executor holds as many activations as the simulator says. Evaluation and generation give what
// one process gives.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/autograd.h"
#include "core/thread_communicator.h"
#include "dist/mesh/mesh.h"
#include "dist/pipeline/execute_pipeline.h"
#include "dist/pipeline/executor.h"
#include "dist/pipeline/partition.h"
#include "dist/pipeline/pipelined_model.h"
#include "dist/pipeline/simulator.h"
#include "dist/store/parameter_store.h"
#include "models/family.h"
#include "models/generation/generate.h"
#include "models/model_keys.h"
#include "ops/elementwise/elementwise.h"
#include "ops/testing/op_check.h"
#include "optim/adam/adam.h"
#include "optim/parameter_groups.h"
#include "tests/parallel/family_cases.h"

namespace tessera {
namespace {

using dist::PipelineExecutor;
using dist::ScheduleKind;
using dist::Stage;
using models::Bundle;
using models::RunOptions;

constexpr int kSteps = 3;

struct Layout {
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int pp = 1;
  int tp = 1;
  int dp = 1;
  int chunks = 1;         // per rank
  int micro_batches = 4;  // of all data-parallel ranks
  bool recompute = false;
  bool sequence_parallel = false;
  bool deterministic = false;
  DType dtype = DType::kFloat32;
  std::string freeze = {};  // parameters with this in their names
};

std::string NameOf(const Layout& l) {
  return Concat(dist::ScheduleName(l.schedule), " pp ", l.pp, " tp ", l.tp, " dp ", l.dp,
                " chunks ", l.chunks, " micro-batches ", l.micro_batches,
                l.recompute ? " recompute" : "", l.sequence_parallel ? " sp" : "");
}

struct Outcome {
  std::vector<double> losses;                         // of each micro-batch, in order
  std::map<std::string, std::vector<float>> weights;  // global
};

RunOptions Options(int step, int64_t number) {
  RunOptions options;
  options.context = {.training = true,
                     .seed = 7,
                     .step = static_cast<uint64_t>(step + 1),
                     .micro_batch = static_cast<uint64_t>(number)};
  options.loss_reduction = LossReduction::kSum;
  options.keep_logits = false;
  return options;
}

Bundle BatchOf(const FamilyCase& family, int step, int64_t number, const Layout& layout) {
  Bundle batch = family.inputs(static_cast<uint64_t>(step * layout.micro_batches + number));
  if (batch.has(keys::kPixelValues)) {
    batch.set(keys::kPixelValues, CastCopy(batch.at(keys::kPixelValues), layout.dtype));
  }
  return batch;
}

// AdamW over replicas; as tests/parallel/family_training_test.cc has it, where sums are split.
dist::ParameterStore MakeStore(const Stage& stage, const Layout& layout,
                               const dist::StoreGroups& ranks) {
  dist::ZeroOptions options{.stage = 0, .bucket_cap_mb = 0.01};
  options.deterministic = layout.deterministic;
  options.find_unused_parameters = true;
  return dist::ParameterStore(
      stage, optim::SplitByDecay(stage.OptimizedParameters(), {.weight_decay = 0.1}),
      [](std::vector<optim::ParameterGroup> groups) {
        return std::make_unique<optim::AdamW>(std::move(groups),
                                              optim::AdamOptions{.lr = 1e-3, .eps = 1e-4});
      },
      ranks, options);
}

// Every rank in its turn writes what it has into the global tensors.
void GatherWeights(const std::vector<nn::Parameter*>& parameters, Communicator& world,
                   Outcome* outcome) {
  for (int turn = 0; turn < world.size(); ++turn) {
    if (turn == world.rank()) {
      for (nn::Parameter* p : parameters) {
        if (p->tied_to != nullptr) continue;
        const Shape& shape = p->placement.global_shape();
        std::vector<float>& values = outcome->weights[p->name];
        if (values.empty()) values.resize(static_cast<size_t>(shape.numel()));
        const Tensor global = Tensor::FromVector(values, shape);
        CopyLocalToGlobal(p->placement, p->tensor.Detach(), global);
        values = global.ToVector<float>();
      }
    }
    world.Barrier();
  }
}

// Plain training in one process; with `deterministic` the sums of the tree.
Outcome OneProcess(const FamilyCase& family, const Layout& layout) {
  Outcome outcome;
  auto model = models::BuildModel(family.config, {.dtype = layout.dtype, .seed = 11});
  EXPECT_TRUE(model.ok()) << Message(model.status());
  if (!layout.freeze.empty()) (*model)->Freeze(layout.freeze);
  const Stage whole({dist::Chunk{{model->get()}, nullptr}}, SingleProcessCommunicator());
  dist::ParameterStore store = MakeStore(whole, layout, {});
  for (int step = 0; step < kSteps; ++step) {
    store.BeginStep(layout.micro_batches);
    for (int m = 0; m < layout.micro_batches; ++m) {
      store.BeginMicroBatch(m);
      const Bundle out = (*model)->Run(BatchOf(family, step, m, layout), Options(step, m));
      outcome.losses.push_back(out.at(keys::kLoss).Item());
      Backward(Mul(out.at(keys::kLoss), 1.0 / 32));
    }
    store.FinishGradients();
    store.Step();
  }
  GatherWeights((*model)->Parameters(), *SingleProcessCommunicator(), &outcome);
  return outcome;
}

Stage BuildStage(const FamilyCase& family, const Layout& layout, const dist::Mesh& mesh,
                 const std::vector<int>& cuts) {
  StatusOr<Stage> stage = dist::BuildStage(family.config,
                                           {.dtype = layout.dtype,
                                            .seed = 11,
                                            .tensor_parallel = layout.tp > 1 ? mesh.tp() : nullptr,
                                            .sequence_parallel = layout.sequence_parallel},
                                           cuts, mesh.pp());
  if (!stage.ok()) throw Error("test", Message(stage.status()));
  for (const auto& model : stage->models()) {
    model->set_checkpoint_activations(layout.recompute);
    if (!layout.freeze.empty()) model->Freeze(layout.freeze);
  }
  return *std::move(stage);
}

std::vector<int> Cuts(const FamilyCase& family, const Layout& layout) {
  const auto costs = dist::ComputedBlockCosts(dist::BlocksOf(family.config, {}), 7);
  EXPECT_TRUE(costs.ok()) << Message(costs.status());
  auto cuts = dist::CutBlocks(*costs, layout.pp * layout.chunks);
  EXPECT_TRUE(cuts.ok()) << Message(cuts.status());
  return *std::move(cuts);
}

Outcome Train(const FamilyCase& family, const Layout& layout, std::vector<int> cuts = {}) {
  Outcome outcome;
  if (cuts.empty()) cuts = Cuts(family, layout);
  RunRanks(layout.pp * layout.tp * layout.dp, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.tp = layout.tp, .pp = layout.pp});
    const Stage stage = BuildStage(family, layout, mesh, cuts);
    PipelineExecutor executor(stage, {.schedule = layout.schedule});
    dist::ParameterStore store = MakeStore(stage, layout, dist::StoreGroupsOf(mesh));
    const int mine = layout.micro_batches / layout.dp;
    const int64_t first = mesh.dp()->rank() * mine;
    const auto schedule = executor.ScheduleFor(mine);
    ASSERT_TRUE(schedule.ok()) << Message(schedule.status());
    const int live = dist::Simulate(*schedule)->peak_live[static_cast<size_t>(mesh.pp()->rank())];
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Bundle> batches;
      for (int m = 0; m < mine; ++m) {
        batches.push_back(BatchOf(family, step, first + m, layout));
      }
      store.BeginStep(mine);
      dist::StepOptions options;
      options.run_options = [&](int m) { return Options(step, first + m); };
      options.scale_loss = [](const Tensor& loss, int) { return Mul(loss, 1.0 / 32); };
      options.before_gradients = [&](int chunk, int m) { store.BeginMicroBatch(m, chunk); };
      const dist::StepResult result = executor.Run(batches, options);
      EXPECT_EQ(result.peak_live, live) << NameOf(layout);
      EXPECT_EQ(result.losses.size(), executor.is_last_stage() ? batches.size() : 0);
      const std::vector<double> losses = executor.ShareLosses(result.losses);
      store.FinishGradients();
      store.Step();
      const Tensor all = Empty({layout.micro_batches}, DType::kFloat64);
      mesh.dp()->AllGather(all, Tensor::FromVector(losses, {mine}))->Wait();
      if (world->rank() != 0) continue;
      for (const double loss : all.ToVector<double>()) outcome.losses.push_back(loss);
    }
    GatherWeights(stage.Parameters(), *world, &outcome);
  });
  return outcome;
}

void ExpectSameBits(const Outcome& outcome, const Outcome& reference, const std::string& where) {
  EXPECT_EQ(outcome.losses, reference.losses) << where;
  ASSERT_EQ(outcome.weights.size(), reference.weights.size()) << where;
  for (const auto& [name, values] : reference.weights) {
    const auto found = outcome.weights.find(name);
    ASSERT_TRUE(found != outcome.weights.end()) << where << " has no " << name;
    EXPECT_TRUE(found->second == values) << where << ": " << name;
  }
}

constexpr ScheduleKind kPlainKinds[] = {ScheduleKind::kGPipe, ScheduleKind::kOneForwardOneBackward,
                                        ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2};

class PipelineTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(PipelineTest, EveryScheduleGivesTheBitsOfOneProcess) {
  for (const int micro_batches : {4, 8}) {
    const Outcome reference = OneProcess(GetParam(), {.micro_batches = micro_batches});
    for (const int pp : {2, 4}) {
      for (const ScheduleKind kind : kPlainKinds) {
        const Layout layout = {.schedule = kind, .pp = pp, .micro_batches = micro_batches};
        ExpectSameBits(Train(GetParam(), layout), reference, NameOf(layout));
      }
    }
    const Layout layout = {.schedule = ScheduleKind::kInterleaved,
                           .pp = 2,
                           .chunks = 2,
                           .micro_batches = micro_batches,
                           .recompute = true};
    ExpectSameBits(Train(GetParam(), layout), reference, NameOf(layout));
  }
}

TEST_P(PipelineTest, RecomputationAndHalfPrecisionKeepTheBits) {
  for (const ScheduleKind kind :
       {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kZeroBubbleH1}) {
    const Layout layout = {.schedule = kind, .pp = 3, .recompute = true};
    ExpectSameBits(Train(GetParam(), layout), OneProcess(GetParam(), layout), NameOf(layout));
  }
  const Layout half = {.schedule = ScheduleKind::kZeroBubbleH2, .pp = 2, .dtype = DType::kBFloat16};
  ExpectSameBits(Train(GetParam(), half), OneProcess(GetParam(), half), "bfloat16");
}

// The balanced tree over micro-batches: one per chunk, begun by the executor.
TEST_P(PipelineTest, DataParallelStagesGiveTheBitsOfOneProcess) {
  const Outcome reference = OneProcess(GetParam(), {.deterministic = true});
  for (const ScheduleKind kind : kPlainKinds) {
    const Layout layout = {.schedule = kind, .pp = 2, .dp = 2, .deterministic = true};
    ExpectSameBits(Train(GetParam(), layout), reference, NameOf(layout));
  }
  const Layout alone = {
      .schedule = ScheduleKind::kInterleaved, .pp = 2, .chunks = 2, .deterministic = true};
  ExpectSameBits(Train(GetParam(), alone), reference, NameOf(alone));
}

double Distance(const Outcome& a, const Outcome& b) {
  double difference = 0;
  double norm = 0;
  for (const auto& [name, values] : b.weights) {
    const std::vector<float>& other = a.weights.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(other[i]) - values[i], 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
  }
  return std::sqrt(difference / norm);
}

TEST_P(PipelineTest, TensorParallelStagesAgree) {
  for (const Layout& layout : {Layout{.schedule = ScheduleKind::kZeroBubbleH1, .pp = 2, .tp = 2},
                               Layout{.schedule = ScheduleKind::kInterleaved,
                               .pp = 2,
                               .tp = 2,
                               .chunks = 2,
                               .recompute = true,
                               .sequence_parallel = true},
                               Layout{.schedule = ScheduleKind::kOneForwardOneBackward,
                               .pp = 2,
                               .tp = 2,
                               .dp = 2,
                               .deterministic = true}}) {
    const Outcome reference = OneProcess(GetParam(), layout);
    const Outcome outcome = Train(GetParam(), layout);
    ASSERT_EQ(outcome.losses.size(), reference.losses.size());
    for (size_t i = 0; i < reference.losses.size(); ++i) {
      EXPECT_NEAR(outcome.losses[i], reference.losses[i], 2e-6 * std::abs(reference.losses[i]))
          << NameOf(layout) << " micro-batch " << i;
    }
    EXPECT_LE(Distance(outcome, reference), 2e-6) << NameOf(layout);
  }
}

// Replicas share one storage on a rank.
TEST_P(PipelineTest, EveryParameterHasOneOwner) {
  std::vector<std::string> names;
  {
    const auto whole = models::BuildModel(GetParam().config, {.device = Device::Meta()});
    for (const nn::Parameter* p : (*whole)->Parameters()) {
      if (p->tied_to == nullptr) names.push_back(p->name);
    }
  }
  const Layout layout = {.schedule = ScheduleKind::kInterleaved, .pp = 2, .chunks = 2};
  const std::vector<int> cuts = Cuts(GetParam(), layout);
  std::vector<int> owners(names.size(), 0);
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.pp = 2});
    const Stage stage = BuildStage(GetParam(), layout, mesh, cuts);
    for (int turn = 0; turn < 2; ++turn) {
      for (size_t i = 0; turn == world->rank() && i < names.size(); ++i) {
        if (stage.Owns(names[i])) ++owners[i];
      }
      world->Barrier();
    }
    EXPECT_FALSE(stage.Owns("no.such.parameter"));
    std::set<std::string> seen;
    for (const optim::Parameter& p : stage.OptimizedParameters()) {
      EXPECT_TRUE(seen.insert(p.name).second) << p.name << " is held twice";
      for (const Tensor& tied : p.tied) EXPECT_EQ(tied.storage(), p.tensor.storage()) << p.name;
    }
    EXPECT_FALSE(seen.empty());
  });
  EXPECT_EQ(owners, std::vector<int>(names.size(), 1));
}

// Evaluation: every rank has the outputs of one process.
TEST_P(PipelineTest, EvaluationGivesTheBitsOfOneProcess) {
  auto whole = models::BuildModel(GetParam().config, {.seed = 11});
  ASSERT_TRUE(whole.ok());
  const Bundle batch = GetParam().inputs(0);
  const Bundle reference = [&] {
    const NoGrad no_grad;
    return (*whole)->Run(batch, {.all_hidden_states = true});
  }();
  const Layout layout = {.pp = 2, .chunks = 2};
  const std::vector<int> cuts = Cuts(GetParam(), layout);
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.pp = 2});
    dist::PipelinedModel model(BuildStage(GetParam(), layout, mesh, cuts));
    EXPECT_EQ(model.num_blocks(), (*whole)->num_blocks());
    const Bundle out = model.Run(batch, {.all_hidden_states = true});
    ASSERT_EQ(out.entries().size(), reference.entries().size());
    for (const auto& [name, t] : reference.entries()) {
      EXPECT_TRUE(out.FindNamed(name)->ToVector<double>() == t.ToVector<double>()) << name;
      EXPECT_EQ(out.FindNamed(name)->dtype(), t.dtype());
    }
    // The same by the executor, several micro-batches at once.
    PipelineExecutor executor(*model.stage(), {.schedule = ScheduleKind::kInterleaved});
    const dist::StepResult result =
        executor.Evaluate({batch, batch, batch},
                          {.run_options = [](int) { return RunOptions(); }, .keep_outputs = true});
    EXPECT_EQ(executor.ShareLosses(result.losses),
              std::vector<double>(3, reference.at(keys::kLoss).Item()));
    EXPECT_EQ(result.outputs.size(), executor.is_last_stage() ? 3u : 0u);
    EXPECT_EQ(result.peak_live, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineTest, testing::ValuesIn(FamilyCases()),
                         [](const auto& info) { return info.param.name; });

const FamilyCase& CaseOf(const std::string& name) {
  for (const FamilyCase& family : FamilyCases()) {
    if (family.name == name) return family;
  }
  throw Error("test", Concat("no family case ", name));
}

// Micro-batches of other lengths: the layouts of messages change within a step.
TEST(PipelineExecutorTest, ShapesMayChangeFromMicroBatchToMicroBatch) {
  for (const char* name : {"gpt2", "t5"}) {
    FamilyCase family = CaseOf(name);
    family.inputs = [](uint64_t v) {
      const int64_t tokens = 2 + static_cast<int64_t>(v * 5 % 7);
      return Bundle{
          {keys::kInputIds, RandomIndices({1 + static_cast<int64_t>(v % 3), tokens}, 53, v)},
          {keys::kLabels, RandomIndices({1 + static_cast<int64_t>(v % 3), tokens}, 53, v + 9)}};
    };
    for (const ScheduleKind kind : kPlainKinds) {
      const Layout layout = {.schedule = kind, .pp = 2, .micro_batches = 6};
      ExpectSameBits(Train(family, layout), OneProcess(family, layout), NameOf(layout));
    }
  }
}

// Cuts anywhere: before and behind the bridge, embeddings and bias tables on several chunks of one
// rank.
TEST(PipelineExecutorTest, T5CutAnywhereGivesTheBitsOfOneProcess) {
  const FamilyCase& family = CaseOf("t5");
  const Outcome reference = OneProcess(family, {});
  for (int a = 1; a < 6; ++a) {
    for (int b = a + 1; b < 7; ++b) {
      const Layout layout = {.schedule = ScheduleKind::kZeroBubbleH1, .pp = 3};
      ExpectSameBits(Train(family, layout, {0, a, b, 7}), reference, Concat("cut ", a, " ", b));
    }
  }
  const Layout three = {.schedule = ScheduleKind::kInterleaved, .pp = 2, .chunks = 3};
  ExpectSameBits(Train(family, three, {0, 1, 2, 3, 5, 6, 7}), reference, "three chunks per rank");
  const Layout alone = {.schedule = ScheduleKind::kInterleaved, .pp = 1, .chunks = 4};
  ExpectSameBits(Train(family, alone, {0, 2, 4, 5, 7}), reference, "four chunks on one rank");
}

TEST(PipelineExecutorTest, GenerationEqualsOneProcess) {
  for (const std::string name : {"gpt2", "t5", "chatglm", "phi3"}) {
    FamilyCase family = CaseOf(name);
    if (name == "phi3") {  // the first prompt's text is read again behind 6 tokens
      family.config["original_max_position_embeddings"] = 6;
      family.config["rope_scaling"] = {
          {"type", "longrope"}, {"short_factor", {1.0, 1.0}}, {"long_factor", {50.0, 1000.0}}};
    }
    auto whole = models::BuildModel(family.config, {.seed = 11});
    ASSERT_TRUE(whole.ok());
    std::vector<std::vector<int64_t>> prompts = {{5, 7, 9, 11}, {3}, {8, 2}};
    for (const int beams : {1, 3}) {
      const models::GenerationConfig config = {
          .max_new_tokens = 6, .num_beams = beams, .eos_token_ids = {52}};
      const auto reference = models::Generate(**whole, prompts, config);
      ASSERT_TRUE(reference.ok()) << name << ": " << Message(reference.status());
      RunRanks(3, [&](const std::shared_ptr<Communicator>& world) {
        const dist::Mesh mesh(world, {.pp = 3});
        const Layout layout = {.pp = 3};
        dist::PipelinedModel model(BuildStage(family, layout, mesh, Cuts(family, layout)));
        const auto results = models::Generate(model, prompts, config);
        ASSERT_TRUE(results.ok()) << name << ": " << Message(results.status());
        for (size_t i = 0; i < prompts.size(); ++i) {
          EXPECT_EQ((*results)[i].ids, (*reference)[i].ids) << name << " beams " << beams;
          EXPECT_FALSE((*results)[i].ids.empty());
        }
      });
    }
  }
}

// Whole stages and chunks among them, and a weight whose uses lie on two stages.
TEST(PipelineExecutorTest, FrozenWeightsKeepTheBits) {
  const FamilyCase& family = CaseOf("gpt2");
  for (const char* freeze : {"wte", "lm_head", "h.0.", "h.1.", ".weight", ".bias"}) {
    Layout layout = {.deterministic = true, .freeze = freeze};
    const Outcome reference = OneProcess(family, layout);
    for (const int dp : {1, 2}) {
      for (const ScheduleKind kind : {ScheduleKind::kOneForwardOneBackward,
                                      ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1}) {
        layout.schedule = kind;
        layout.dp = dp;
        layout.chunks = kind == ScheduleKind::kInterleaved ? 2 : 1;
        layout.pp = kind == ScheduleKind::kZeroBubbleH1 ? 4 : 2;
        ExpectSameBits(Train(family, layout), reference, NameOf(layout) + " without " + freeze);
      }
    }
  }
}

TEST(PipelineExecutorTest, FrozenWeightsStayAndOthersTrain) {
  const FamilyCase& family = CaseOf("gpt2");
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.pp = 2});
    const Layout layout = {.schedule = ScheduleKind::kZeroBubbleH1, .pp = 2};
    const Stage stage = BuildStage(family, layout, mesh, Cuts(family, layout));
    // The whole first stage: nothing of it differentiates, and nothing is sent back.
    for (const auto& model : stage.models()) {
      for (const char* pattern : {"wte", "wpe", "lm_head", "h.0."}) model->Freeze(pattern);
    }
    PipelineExecutor executor(stage, {.schedule = layout.schedule});
    std::vector<Bundle> batches;
    for (int m = 0; m < 4; ++m) batches.push_back(family.inputs(static_cast<uint64_t>(m)));
    executor.Run(batches, {.run_options = [](int m) { return Options(0, m); }});
    stage.JoinTiedGradients();
    size_t with_gradient = 0;
    for (const optim::Parameter& p : stage.OptimizedParameters()) {
      EXPECT_EQ(p.name.find("h.0."), std::string::npos);
      if (Grad(p.tensor).defined()) ++with_gradient;
    }
    EXPECT_EQ(with_gradient, stage.OptimizedParameters().size());
    EXPECT_GE(with_gradient, world->rank() == 1 ? 10u : 0u);
  });
}

TEST(PipelineExecutorTest, RefusesWhatDoesNotFit) {
  const FamilyCase& family = CaseOf("gpt2");
  RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
    const dist::Mesh mesh(world, {.pp = 2});
    const Layout layout = {.schedule = ScheduleKind::kInterleaved, .pp = 2, .chunks = 2};
    const Stage stage = BuildStage(family, layout, mesh, Cuts(family, layout));
    PipelineExecutor executor(stage, {.schedule = layout.schedule});
    const dist::StepOptions options = {.run_options = [](int m) { return Options(0, m); }};
    const std::vector<Bundle> three(3, family.inputs(0));
    EXPECT_THROW(executor.Run(three, options), Error);
    EXPECT_THROW(executor.Run({}, options), Error);
    dist::Schedule broken = *executor.ScheduleFor(2);
    broken.ranks[1].pop_back();
    try {
      executor.Run(broken, {family.inputs(0), family.inputs(0)}, options);
      ADD_FAILURE() << "a broken schedule was executed";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("rank 0 waits in receiving the gradient"),
                std::string::npos)
          << e.what();
    }
  });
}

}  // namespace
}  // namespace tessera
