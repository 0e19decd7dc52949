// SPDX-License-Identifier: Apache-2.0
// The spine: proof that the lower floors carry every kind of parallelism, with plain code on top of
// them. One GPT with dropout is trained for five steps in one process, and again
//   - with tensor parallelism over 2 and 3 ranks (4 heads and a vocabulary of 50257, which neither
//     divides), with and without sequence parallelism,
//   - as two pipeline stages with a tied embedding on both and queued weight gradients,
//   - with every parameter sharded over 2 data ranks, gathered before use and released after it,
// each with and without recomputation. Tensor parallelism splits sums and agrees to about 1e-7;
// everything else gives the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/recompute.h"
#include "core/thread_communicator.h"
#include "models/family.h"
#include "models/model.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"
#include "optim/adam/adam.h"

namespace tessera {
namespace {

using models::Bundle;
using models::Model;
using models::RunOptions;

constexpr int kSteps = 5;
constexpr int kMicroBatches = 2;
constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 7;
constexpr uint64_t kSeed = 11;

nlohmann::json Config() {
  return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_positions", 16},
          {"n_embd", 24},         {"n_layer", 3},        {"n_head", 4},
          {"resid_pdrop", 0.2},   {"embd_pdrop", 0.2},   {"attn_pdrop", 0.2}};
}

std::unique_ptr<Model> Build(const nn::BuildContext& context, bool recompute) {
  auto model = models::BuildModel(Config(), context);
  EXPECT_TRUE(model.ok()) << Message(model.status());
  (*model)->set_checkpoint_activations(recompute);
  return *std::move(model);
}

// The data of global micro-batch `micro` of a step: known to every rank.
Bundle Batch(int step, int micro) {
  const auto seed = static_cast<uint64_t>(1000 + step * kMicroBatches + micro);
  return {{keys::kInputIds, RandomIndices({kRows, kTokens}, 50257, seed)},
          {keys::kTargets, RandomIndices({kRows, kTokens}, 50257, seed + 500)}};
}

RunOptions Options(int step, int micro) {
  RunOptions options;
  options.context = {.training = true,
                     .seed = kSeed,
                     .step = static_cast<uint64_t>(step + 1),
                     .micro_batch = static_cast<uint64_t>(micro)};
  options.loss_reduction = LossReduction::kSum;
  options.keep_logits = false;
  return options;
}

// What the summed loss is multiplied by.
Tensor LossGrad() { return Full({}, 1.0 / (kMicroBatches * kRows * kTokens)); }

optim::AdamOptions Adam() { return {.lr = 1e-3, .betas = {0.9, 0.95}, .eps = 1e-6}; }

// Matrices decay, as training does it.
std::vector<optim::ParameterGroup> Groups(const std::vector<optim::Parameter>& parameters,
                                          const std::function<bool(const std::string&)>& decays) {
  optim::ParameterGroup decay{.parameters = {}, .weight_decay = 0.1};
  optim::ParameterGroup rest{.parameters = {}};
  for (const optim::Parameter& p : parameters)
    (decays(p.name) ? decay : rest).parameters.push_back(p);
  return {decay, rest};
}

std::vector<optim::Parameter> ParametersOf(Model& model) {
  std::vector<optim::Parameter> parameters;
  for (const nn::Parameter* p : model.Parameters()) {
    if (p->tied_to == nullptr) parameters.push_back({p->name, p->tensor, {}});
  }
  for (const nn::Parameter* p : model.Parameters()) {
    if (p->tied_to == nullptr) continue;
    for (optim::Parameter& q : parameters) {
      if (q.name == p->tied_to->name) q.tied.push_back(p->tensor);
    }
  }
  return parameters;
}

bool IsMatrix(Model& model, const std::string& name) {
  return model.FindParameter(name)->placement.global_shape().ndim() >= 2;
}

struct Outcome {
  std::vector<double> losses;                         // per micro-batch, in order
  std::map<std::string, std::vector<float>> weights;  // global
};

Outcome OneProcess() {
  Outcome outcome;
  const auto model = Build({.seed = kSeed}, false);
  optim::AdamW optimizer(
      Groups(ParametersOf(*model), [&](const auto& name) { return IsMatrix(*model, name); }),
      Adam());
  for (int step = 0; step < kSteps; ++step) {
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      const Tensor loss = model->Run(Batch(step, micro), Options(step, micro)).at(keys::kLoss);
      outcome.losses.push_back(loss.Item());
      Backward({loss}, {LossGrad()});
    }
    optimizer.Step();
    optimizer.ZeroGrad();
  }
  for (const auto& [name, t] : model->StateDict()) outcome.weights[name] = t.ToVector<float>();
  return outcome;
}

const Outcome& Reference() {
  static const Outcome outcome = OneProcess();
  return outcome;
}

// Every rank writes the boxes it has into one global tensor, one after the other.
void GatherWeights(Model& model, Communicator& world,
                   std::map<std::string, std::vector<float>>* weights) {
  for (int turn = 0; turn < world.size(); ++turn) {
    if (turn == world.rank()) {
      model.VisitParameters([&](nn::Parameter& p) {
        if (p.tied_to != nullptr) return;
        const Shape& shape = p.placement.global_shape();
        std::vector<float>& values = (*weights)[p.name];
        if (values.empty()) values.resize(static_cast<size_t>(shape.numel()));
        const Tensor global = Tensor::FromVector(values, shape);
        CopyLocalToGlobal(p.placement, p.tensor.Detach(), global);
        values = global.ToVector<float>();
      });
    }
    world.Barrier();
  }
}

double Distance(const std::map<std::string, std::vector<float>>& a,
                const std::map<std::string, std::vector<float>>& b) {
  double difference = 0;
  double norm = 0;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, values] : b) {
    const std::vector<float>& other = a.at(name);
    EXPECT_EQ(other.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(static_cast<double>(other[i]) - values[i], 2);
      norm += std::pow(static_cast<double>(values[i]), 2);
    }
  }
  return std::sqrt(difference / norm);
}

// --- Tensor parallelism --------------------------------------------------------------------------

Outcome TensorParallel(int ranks, bool sequence_parallel, bool recompute) {
  Outcome outcome;
  RunRanks(ranks, [&](std::shared_ptr<Communicator> world) {
    const auto model =
        Build({.seed = kSeed, .tensor_parallel = world, .sequence_parallel = sequence_parallel},
              recompute);
    optim::AdamW optimizer(
        Groups(ParametersOf(*model), [&](const auto& name) { return IsMatrix(*model, name); }),
        Adam());
    for (int step = 0; step < kSteps; ++step) {
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        const Tensor loss = model->Run(Batch(step, micro), Options(step, micro)).at(keys::kLoss);
        if (world->rank() == 0) outcome.losses.push_back(loss.Item());
        Backward({loss}, {LossGrad()});
      }
      for (nn::Parameter* p : model->Parameters()) {
        if (p->gradient_group != nullptr) {
          p->gradient_group->AllReduce(Grad(p->tensor), ReduceOp::kSum)->Wait();
        }
      }
      optimizer.Step();
      optimizer.ZeroGrad();
    }
    GatherWeights(*model, *world, &outcome.weights);
  });
  return outcome;
}

class TensorParallelTest : public testing::TestWithParam<std::tuple<int, bool, bool>> {};

TEST_P(TensorParallelTest, AgreesWithOneProcess) {
  const auto& [ranks, sequence_parallel, recompute] = GetParam();
  const Outcome outcome = TensorParallel(ranks, sequence_parallel, recompute);
  ASSERT_EQ(outcome.losses.size(), Reference().losses.size());
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], Reference().losses[i], 2e-6 * Reference().losses[i]) << i;
  }
  EXPECT_LE(Distance(outcome.weights, Reference().weights), 2e-6) << "seed " << FreshSeed();
}

INSTANTIATE_TEST_SUITE_P(Spine, TensorParallelTest,
                         testing::Values(std::tuple{2, false, false}, std::tuple{3, false, false},
                                         std::tuple{2, true, false}, std::tuple{3, true, true},
                                         std::tuple{4, false, true}),
                         [](const auto& info) {
                           return Concat("tp", std::get<0>(info.param),
                                         std::get<1>(info.param) ? "_sequence" : "",
                                         std::get<2>(info.param) ? "_recompute" : "");
                         });

// --- Pipeline ------------------------------------------------------------------------------------

// Stage 0 has the embedding and the first layers, stage 1 the rest, the head, and a replica of the
// tied weight. All micro-batches forward, then all backward in order, weight gradients last.
void RunStage(Communicator& world, bool recompute, Outcome* outcome) {
  const int stage = world.rank();
  const int peer = 1 - stage;
  constexpr int kCut = 2;
  const auto model = Build(
      {.seed = kSeed, .first_block = stage == 0 ? 0 : kCut, .end_block = stage == 0 ? kCut : -1},
      recompute);
  std::vector<optim::Parameter> parameters = ParametersOf(*model);
  // The gradient of the tied weight's uses on the other stage arrives in a leaf of its own; the
  // order of the sum is that of one process: embedding first, head second.
  nn::Parameter* wte = model->FindParameter("transformer.wte.weight");
  Tensor elsewhere;
  if (stage == 0) {
    elsewhere = RequireGrad(wte->tensor.Detach());
    for (optim::Parameter& p : parameters) {
      if (p.name == wte->name) p.tied.push_back(elsewhere);
    }
  } else {
    elsewhere = wte->tensor;
  }
  optim::AdamW optimizer(
      Groups(parameters, [&](const auto& name) { return IsMatrix(*model, name); }), Adam());
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Tensor> results;
    std::vector<Tensor> received;
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      Bundle in = Batch(step, micro);
      if (stage == 1) {
        const Tensor hidden = Zeros({kRows, kTokens, 24});
        world.Receive(hidden, peer, micro)->Wait();
        in.erase(keys::kInputIds);
        in.set(keys::kHidden, RequireGrad(hidden));
        in.set(keys::kPositionIds, Zeros({kRows, kTokens}, DType::kInt64));
        received.push_back(hidden);
      }
      const Bundle out = model->Run(in, Options(step, micro));
      results.push_back(stage == 0 ? out.at(keys::kHidden) : out.at(keys::kLoss));
      if (stage == 0) world.Send(results.back().Detach(), peer, micro)->Wait();
      if (stage == 1) outcome->losses.push_back(results.back().Item());
    }
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      WeightGradQueue queue;
      Tensor grad = LossGrad();
      if (stage == 0) {
        grad = Zeros({kRows, kTokens, 24});
        world.Receive(grad, peer, 100 + micro)->Wait();
      }
      Backward({results[micro]}, {grad}, {.weight_queue = &queue});
      if (stage == 1) world.Send(Grad(received[micro]), peer, 100 + micro)->Wait();
      EXPECT_FALSE(queue.empty());
      queue.Run();  // in micro-batch order, after the input gradients
    }
    const Tensor mine =
        Grad(stage == 0 ? wte->tensor : model->FindParameter("lm_head.weight")->tensor);
    const Tensor theirs = ZerosLike(mine);
    world.Send(mine, peer, 200)->Wait();
    world.Receive(theirs, peer, 200)->Wait();
    SetGrad(elsewhere, theirs);
    optimizer.Step();
    optimizer.ZeroGrad();
  }
  GatherWeights(*model, world, &outcome->weights);
}

class PipelineTest : public testing::TestWithParam<bool> {};

TEST_P(PipelineTest, GivesTheBitsOfOneProcess) {
  Outcome outcome;
  RunRanks(2, [&](std::shared_ptr<Communicator> world) { RunStage(*world, GetParam(), &outcome); });
  EXPECT_EQ(outcome.losses, Reference().losses);
  EXPECT_EQ(outcome.weights, Reference().weights);
}

INSTANTIATE_TEST_SUITE_P(Spine, PipelineTest, testing::Bool());

// --- ZeRO-3 --------------------------------------------------------------------------------------

// Keeps 1/N of every parameter; brings the rest before a module uses it.
class Sharder {
 public:
  explicit Sharder(std::shared_ptr<Communicator> world) : world_(std::move(world)) {}

  // As BuildContext::on_parameter: no rank ever holds more than one whole parameter.
  void Shard(nn::Parameter& p) {
    const int64_t size = (p.tensor.numel() + world_->size() - 1) / world_->size();
    Entry& entry = entries_[p.tensor.storage().get()];
    entry.whole = p.tensor.Detach();
    entry.shard = Zeros({size});
    const Share share = ShareOf(p.tensor.numel(), world_->rank());
    CopyInto(Slice(entry.shard, 0, 0, share.count),
             Slice(Reshape(entry.whole, {entry.whole.numel()}), 0, share.begin, share.count));
    p.tensor.storage()->ReleaseBytes();
  }

  void Gather(const Tensor& t) {
    Entry& entry = entries_.at(t.storage().get());
    if (!t.storage()->released()) return;
    t.storage()->ObtainBytes();
    const UncountedWrite same_contents(t.storage());
    const Tensor all = Empty({entry.shard.numel() * world_->size()});
    world_->AllGather(all, entry.shard)->Wait();
    CopyInto(entry.whole, Reshape(Slice(all, 0, 0, entry.whole.numel()), entry.whole.shape()));
    ++gathers;
  }
  void Release(const Tensor& t) { t.storage()->ReleaseBytes(); }
  void ReleaseAll() {
    for (auto& [storage, entry] : entries_) entry.whole.storage()->ReleaseBytes();
  }

  const Tensor& shard(const Tensor& t) { return entries_.at(t.storage().get()).shard; }
  Share ShareOf(int64_t numel, int rank) const {
    const int64_t size = (numel + world_->size() - 1) / world_->size();
    const int64_t begin = std::min(numel, size * rank);
    return {begin, std::min(size, numel - begin)};
  }
  int gathers = 0;

 private:
  struct Entry {
    Tensor whole;  // released but while it is used
    Tensor shard;  // padded
  };
  const std::shared_ptr<Communicator> world_;
  std::map<const Storage*, Entry> entries_;
};

void RunZero(const std::shared_ptr<Communicator>& world, bool recompute, Outcome* outcome) {
  Sharder sharder(world);
  const auto model = Build(
      {.seed = kSeed, .on_parameter = [&](nn::Parameter& p) { sharder.Shard(p); }}, recompute);
  model->VisitModules([&](nn::Module& m) {
    if (m.own_parameters().empty()) return;
    const auto gather = [&](const nn::Module& module) {
      for (const auto& p : module.own_parameters()) sharder.Gather(p->tensor);
    };
    const auto release = [&](const nn::Module& module) {
      if (InRecomputation()) return;  // the backward pass is about to need them
      for (const auto& p : module.own_parameters()) sharder.Release(p->tensor);
    };
    m.AddHooks({.pre_forward = gather,
                .post_forward = release,
                .pre_backward = gather,
                .post_backward = release});
  });
  // The optimizer sees the shards.
  std::vector<optim::Parameter> shards;
  for (const optim::Parameter& p : ParametersOf(*model)) {
    shards.push_back({p.name, RequireGrad(sharder.shard(p.tensor)), {}});
  }
  optim::AdamW optimizer(Groups(shards, [&](const auto& name) { return IsMatrix(*model, name); }),
                         Adam());
  for (int step = 0; step < kSteps; ++step) {
    const int micro = world->rank();  // global micro-batch
    const Tensor loss = model->Run(Batch(step, micro), Options(step, micro)).at(keys::kLoss);
    Backward({loss}, {LossGrad()});
    sharder.ReleaseAll();
    // Data moves by the collective, the sums are ours, in micro-batch order.
    const auto summed = [&](const Tensor& leaf) {
      const Tensor grad = Grad(leaf);
      Shape all_shape = grad.shape();
      all_shape.insert(0, world->size());
      const Tensor all = Empty(all_shape);
      world->AllGather(all, grad)->Wait();
      const Tensor sum = Select(all, 0, 0).ContiguousCopy();
      const Tensor owned = CastCopy(sum, sum.dtype());
      for (int r = 1; r < world->size(); ++r) AddInto(owned, Select(all, 0, r));
      return owned;
    };
    const std::vector<optim::Parameter> whole = ParametersOf(*model);
    for (size_t i = 0; i < whole.size(); ++i) {
      const Tensor total = summed(whole[i].tensor);
      for (const Tensor& tied : whole[i].tied) AddInto(total, summed(tied));
      const Share share = sharder.ShareOf(total.numel(), world->rank());
      const Tensor grad = Zeros(shards[i].tensor.shape());
      CopyInto(Slice(grad, 0, 0, share.count),
               Slice(Reshape(total, {total.numel()}), 0, share.begin, share.count));
      SetGrad(shards[i].tensor, grad);
    }
    optimizer.Step();
    optimizer.ZeroGrad();
    model->ZeroGrad();
    const Tensor losses = Empty({kMicroBatches});
    world->AllGather(losses, Reshape(loss.Detach(), {1}))->Wait();
    if (world->rank() == 0) {
      for (float l : losses.ToVector<float>()) outcome->losses.push_back(l);
    }
  }
  EXPECT_GT(sharder.gathers, 2 * kSteps * 20);
  for (const optim::Parameter& p : ParametersOf(*model)) {
    sharder.Gather(p.tensor);
    if (world->rank() == 0) outcome->weights[p.name] = p.tensor.ToVector<float>();
  }
}

class ZeroTest : public testing::TestWithParam<bool> {};

TEST_P(ZeroTest, GivesTheBitsOfOneProcess) {
  Outcome outcome;
  RunRanks(kMicroBatches,
           [&](std::shared_ptr<Communicator> world) { RunZero(world, GetParam(), &outcome); });
  EXPECT_EQ(outcome.losses, Reference().losses);
  EXPECT_EQ(outcome.weights, Reference().weights);
}

INSTANTIATE_TEST_SUITE_P(Spine, ZeroTest, testing::Bool());

}  // namespace
}  // namespace tessera
