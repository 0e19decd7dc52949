// SPDX-License-Identifier: Apache-2.0
// ZeRO against one process: small models of every family trained for a few steps of four
// micro-batches with dropout, clipping and weight decay, at every stage, number of ranks, dtype and
// place of the states. With deterministic sums losses, norms and weights are equal bit for bit;
// without, one rank still gives the bits of one process, and several agree to rounding.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/file.h"
#include "core/allocator.h"
#include "core/thread_communicator.h"
#include "dist/activations/activation_store.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/mesh/mesh.h"
#include "dist/store/parameter_shard.h"
#include "dist/store/parameter_store.h"
#include "dist/store/zero_init.h"
#include "models/family.h"
#include "models/model_keys.h"
#include "nlohmann/json.hpp"
#include "ops/elementwise/elementwise.h"
#include "optim/adam/adam.h"
#include "optim/modules/module_parameters.h"
#include "optim/parameter_groups.h"
#include "tests/parallel/family_cases.h"

namespace tessera {
namespace {

using dist::GatherFor;
using dist::ParameterStore;
using dist::ZeroOptions;

constexpr int kSteps = 3;
constexpr int64_t kMicroBatches = 4;  // of all ranks together

// A GPT with more than one chunk of a norm in its tied embedding, and parameters of a few elements.
FamilyCase Gpt() {
  FamilyCase gpt;
  gpt.name = "gpt";
  gpt.config = {{"model_type", "gpt2"}, {"vocab_size", 1511}, {"n_positions", 16},
                {"n_embd", 24},         {"n_layer", 3},       {"n_head", 4},
                {"resid_pdrop", 0.2},   {"embd_pdrop", 0.2},  {"attn_pdrop", 0.2}};
  gpt.inputs = [](uint64_t variation) {
    const auto ids = [&](uint64_t salt) {
      std::vector<int64_t> values;
      for (uint64_t i = 0; i < 14; ++i) {
        values.push_back(static_cast<int64_t>((variation * 7919 + i * 104729 + salt) % 1511));
      }
      return Tensor::FromVector(values, {2, 7});
    };
    return models::Bundle{{keys::kInputIds, ids(1)}, {keys::kTargets, ids(77)}};
  };
  return gpt;
}

// p -= lr * m / rms(m) with m = m / 2 + g: of a matrix over all of it, of a vector element by
// element, so that matrices must not be cut. States: `momentum` of the parameter's shape, and the
// last `rms`, a scalar.
class WholeMatrixOptimizer final : public optim::Optimizer {
 public:
  explicit WholeMatrixOptimizer(std::vector<optim::ParameterGroup> groups)
      : groups_(std::move(groups)) {
    const Device device = optim::CommonDevice(parameters());
    learning_rate_ = Full({}, 1e-3, DType::kFloat64, device);
    step_ = Zeros({}, DType::kInt64, device);
    for (const optim::Parameter& p : parameters()) {
      momentum_[p.name] = Zeros(p.tensor.shape(), DType::kFloat32, device);
      rms_[p.name] = Zeros({}, DType::kFloat32, device);
    }
  }
  static bool NeedsWhole(const optim::Parameter& p) { return p.tensor.ndim() > 1; }

  const std::vector<optim::ParameterGroup>& groups() const override { return groups_; }
  Tensor learning_rate() const override { return learning_rate_; }
  Tensor step() const override { return step_; }
  void RefreshMasterWeights() override {}
  void VisitState(const optim::StateVisitor& visit) const override {
    visit("", "step", step_, Placement::Whole({}));
    for (const optim::Parameter& p : parameters()) {
      visit(p.name, "momentum", momentum_.at(p.name), optim::PlacementOf(p));
      if (NeedsWhole(p)) visit(p.name, "rms", rms_.at(p.name), Placement::Whole({}));
    }
  }

 private:
  void DoStep(const optim::StepInputs& inputs) override {
    AddInto(step_, Full({}, 1, DType::kInt64, step_.device()));
    optim::JoinTiedGradients(parameters());
    const auto factor = inputs.clip_factor.defined() ? inputs.clip_factor.Item() : 1.0;
    const double lr = learning_rate_.Item();
    for (const optim::Parameter& p : parameters()) {
      const Tensor grad = optim::GradOrNone(p.tensor);
      if (!grad.defined()) continue;
      const auto n = static_cast<size_t>(grad.numel());
      const float* g = grad.data<float>();
      float* m = momentum_.at(p.name).data<float>();
      float* w = p.tensor.data<float>();
      double squares = 0;
      for (size_t i = 0; i < n; ++i) {
        m[i] = 0.5F * m[i] + static_cast<float>(factor) * g[i];
        squares += static_cast<double>(m[i]) * m[i];
      }
      const double rms = std::sqrt(squares / static_cast<double>(n));
      rms_.at(p.name).data<float>()[0] = static_cast<float>(rms);
      for (size_t i = 0; i < n; ++i) {
        const double scale = NeedsWhole(p) ? rms : std::abs(m[i]);
        w[i] -= static_cast<float>(lr * m[i] / (scale + 1e-4));
      }
      p.tensor.storage()->BumpVersion();
    }
  }

  const std::vector<optim::ParameterGroup> groups_;
  Tensor learning_rate_;
  Tensor step_;
  std::map<std::string, Tensor> momentum_;
  std::map<std::string, Tensor> rms_;
};

struct Case {
  FamilyCase family = Gpt();
  int dp = 1;
  int tp = 1;
  bool sequence_parallel = false;
  DType dtype = DType::kFloat32;
  std::optional<DType> grad_dtype = std::nullopt;
  bool recompute = false;
  bool deterministic = true;
  bool find_unused = false;
  // nullopt: replicas; in one process an optimizer without a store, and sums taken here.
  std::optional<ZeroOptions> zero = std::nullopt;
  bool sharded_construction = false;
  bool early = false;
  bool whole_matrices = false;  // WholeMatrixOptimizer, else AdamW
  double max_norm = 0.05;
  std::function<bool(const std::string& weight)> trains = nullptr;  // nullptr: all
  std::string save_to = {};  // a checkpoint after the first step
  std::string resume_from = {};
  std::shared_ptr<SavedTensorHooks> activations = nullptr;
  std::function<void(ParameterStore&, models::Model&)> inspect = nullptr;  // after the last step
};

struct Outcome {
  std::vector<double> losses;  // of each micro-batch, in order
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> weights;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::unique_ptr<optim::Optimizer> MakeAdamW(std::vector<optim::ParameterGroup> groups) {
  return std::make_unique<optim::AdamW>(std::move(groups),
                                        optim::AdamOptions{.lr = 1e-3, .eps = 1e-4});
}

// One rank's training, by a store or without it.
class RankRun {
 public:
  RankRun(const Case& setup, const std::shared_ptr<Communicator>& world, Outcome* outcome)
      : setup_(setup), mesh_(world, {.tp = setup.tp}), outcome_(outcome) {
    ZeroOptions options = setup.zero.value_or(ZeroOptions{.stage = 0, .bucket_cap_mb = 0.01});
    options.deterministic = setup.deterministic;
    options.find_unused_parameters = setup.find_unused;
    nn::BuildContext build = {.dtype = setup.dtype,
                              .seed = 11,
                              .tensor_parallel = mesh_.tp(),
                              .sequence_parallel = setup.sequence_parallel};
    if (setup.sharded_construction)
      dist::CutWhileBuilding(options, dist::StoreGroupsOf(mesh_), &build);
    auto model = models::BuildModel(setup.family.config, build);
    if (!model.ok()) throw std::runtime_error(Message(model.status()));
    model_ = *std::move(model);
    model_->set_checkpoint_activations(setup.recompute);
    for (nn::Parameter* p : model_->Parameters()) {
      if (p->tied_to == nullptr && setup.trains && !setup.trains(p->name)) DropGrad(p->tensor);
    }
    if (setup.grad_dtype) {
      for (nn::Parameter* p : model_->Parameters()) {
        if (p->can_train) RequireGrad(p->tensor, *setup.grad_dtype);
      }
    }
    parameters_ = optim::ParametersOf(*model_);
    const auto groups = optim::SplitByDecay(parameters_, {.weight_decay = 0.1});
    const dist::OptimizerFactory make =
        !setup.whole_matrices ? dist::OptimizerFactory(MakeAdamW)
                              : [](std::vector<optim::ParameterGroup> g) {
                                  return std::make_unique<WholeMatrixOptimizer>(std::move(g));
                                };
    if (!setup.zero && world->size() == 1) {
      optimizer_ = make(groups);
      return;
    }
    store_ = std::make_unique<ParameterStore>(
        *model_, groups, make, dist::StoreGroupsOf(mesh_), options,
        setup.whole_matrices ? dist::NeedsWhole(WholeMatrixOptimizer::NeedsWhole) : nullptr);
    store_->Start();
  }

  void Train() {
    int step = 0;
    if (!setup_.resume_from.empty()) {
      Restore();
      step = 1;
    }
    for (; step < kSteps; ++step) {
      Step(step);
      if (step == 0 && !setup_.save_to.empty()) Save();
    }
    if (store_ != nullptr && setup_.inspect) setup_.inspect(*store_, *model_);
    KeepWeights();
  }

 private:
  // Half precision in float16 has its loss multiplied; in the second step so that it overflows.
  bool scaled() const { return setup_.dtype == DType::kFloat16; }
  double Scale(int step) const { return !scaled() ? 1 : step == 1 ? 1e38 : 1024; }

  void Step(int step) {
    const int64_t mine = kMicroBatches / mesh_.dp()->size();
    optim::StepInputs inputs;
    if (scaled()) {
      inputs.loss_scale = Full({}, Scale(step));
      inputs.found_inf = Zeros({});
    }
    optim::Optimizer& optimizer = store_ != nullptr ? store_->optimizer() : *optimizer_;
    optimizer.set_learning_rate(1e-3 / (step + 1));
    if (store_ != nullptr) {
      store_->BeginStep(mine, setup_.early ? std::optional(inputs) : std::nullopt);
    }
    const Tensor losses = Zeros({mine}, DType::kFloat64);
    for (int64_t m = 0; m < mine; ++m) losses.data<double>()[m] = MicroBatch(step, m, mine);
    if (store_ != nullptr) {
      store_->FinishGradients();
    } else {
      SumMicroBatches();
    }
    const optim::ClipResult clip = Clip(inputs);
    if (!setup_.early) inputs.clip_factor = clip.factor;
    if (store_ != nullptr) {
      store_->Step(inputs);
    } else {
      optimizer_->Step(inputs);
      optimizer_->ZeroGrad();
    }
    const Tensor all = Empty({kMicroBatches}, DType::kFloat64);
    mesh_.dp()->AllGather(all, losses)->Wait();
    if (mesh_.world()->rank() != 0) return;
    for (const double loss : all.ToVector<double>()) outcome_->losses.push_back(loss);
    const double norm = clip.norm.Item();
    outcome_->norms.push_back(std::isfinite(norm) ? norm : -1);
  }

  double MicroBatch(int step, int64_t m, int64_t mine) {
    if (store_ != nullptr) store_->BeginMicroBatch(m);
    const auto number = static_cast<uint64_t>(mesh_.dp()->rank() * mine + m);
    models::RunOptions options;
    options.context = {.training = true,
                       .seed = 7,
                       .step = static_cast<uint64_t>(step + 1),
                       .micro_batch = number};
    options.loss_reduction = LossReduction::kSum;
    options.keep_logits = false;
    const models::Bundle batch =
        setup_.family.inputs(static_cast<uint64_t>(step * kMicroBatches) + number);
    Tensor loss;
    {
      const SavedTensorScope scope(setup_.activations.get());
      loss = model_->Run(batch, options).at(keys::kLoss);
    }
    Backward(Mul(loss, Scale(step) / 32));
    if (store_ == nullptr && setup_.deterministic) KeepGradients();
    return loss.Item();
  }

  std::vector<Tensor> Leaves() const {
    std::vector<Tensor> leaves;
    for (const optim::Parameter& p : parameters_) {
      leaves.push_back(p.tensor);
      leaves.insert(leaves.end(), p.tied.begin(), p.tied.end());
    }
    return leaves;
  }

  void KeepGradients() {
    std::vector<Tensor>& kept = micro_batches_.emplace_back();
    for (const Tensor& leaf : Leaves()) {
      kept.push_back(Grad(leaf));
      SetGrad(leaf, Tensor());
    }
  }

  // The balanced tree over micro-batches that `deterministic` stands for, without a store.
  void SumMicroBatches() {
    if (!setup_.deterministic) return;
    const std::vector<Tensor> leaves = Leaves();
    for (size_t stride = 1; stride < micro_batches_.size(); stride *= 2) {
      for (size_t m = 0; m < micro_batches_.size(); m += 2 * stride) {
        for (size_t i = 0; i < leaves.size(); ++i) {
          Tensor& sum = micro_batches_[m][i];
          const Tensor& more = micro_batches_[m + stride][i];
          if (!sum.defined()) {
            sum = more;
          } else if (more.defined()) {
            AddInto(sum, more);
          }
        }
      }
    }
    for (size_t i = 0; i < leaves.size(); ++i) SetGrad(leaves[i], micro_batches_[0][i]);
    micro_batches_.clear();
  }

  optim::ClipResult Clip(const optim::StepInputs& inputs) {
    const optim::ClipOptions clip{.max_norm = setup_.max_norm,
                                  .loss_scale = inputs.loss_scale,
                                  .found_inf = inputs.found_inf};
    return store_ != nullptr ? store_->Clip(clip) : optim::ClipGradNorm(parameters_, clip);
  }

  std::vector<dist::CheckpointTensor> Tensors() {
    if (store_ != nullptr) return store_->CheckpointTensors();
    std::vector<dist::CheckpointTensor> tensors;
    for (nn::Parameter* p : model_->Parameters()) {
      if (p->tied_to == nullptr) {
        tensors.push_back({"model." + p->name, p->tensor.Detach(), p->placement});
      }
    }
    optimizer_->VisitState([&](const std::string& parameter, const std::string& state,
                               const Tensor& t, const Placement&) {
      tensors.push_back({"optimizer." + optim::StateName(parameter, state), t,
                         parameter.empty() ? Placement::Whole(t.shape())
                                           : model_->FindParameter(parameter)->placement});
    });
    return tensors;
  }

  void Save() {
    const Status saved =
        dist::SaveCheckpoint(setup_.save_to, 1, Tensors(), nullptr, *mesh_.world());
    if (!saved.ok()) throw std::runtime_error(Message(saved));
  }

  void Restore() {
    const auto checkpoint = dist::Checkpoint::Open(setup_.resume_from, *mesh_.world());
    if (!checkpoint.ok()) throw std::runtime_error(Message(checkpoint.status()));
    for (nn::Parameter* p : model_->Parameters()) {  // nothing is left of the first values
      if (setup_.zero == std::nullopt) Fill(p->tensor.Detach(), 7.0);
    }
    const Status loaded = checkpoint->Load(Tensors(), *mesh_.world());
    if (!loaded.ok()) throw std::runtime_error(Message(loaded));
    if (store_ != nullptr) store_->Loaded();
  }

  // Of tensor-parallel ranks, rank 0's parts.
  void KeepWeights() {
    std::map<std::string, Tensor> weights =
        store_ != nullptr ? store_->FullStateDict() : model_->StateDict();
    if (mesh_.world()->rank() != 0) return;
    for (const auto& [name, t] : weights) outcome_->weights[name] = t.ToVector<double>();
  }

  const Case& setup_;
  const dist::Mesh mesh_;
  Outcome* const outcome_;
  std::unique_ptr<models::Model> model_;
  std::vector<optim::Parameter> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<std::vector<Tensor>> micro_batches_;  // their leaves' gradients
  std::unique_ptr<ParameterStore> store_;
};

Outcome Train(const Case& setup) {
  Outcome outcome;
  RunRanks(setup.dp * setup.tp, [&](const std::shared_ptr<Communicator>& world) {
    RankRun(setup, world, &outcome).Train();
  });
  return outcome;
}

// The same without ranks and without ZeRO.
Outcome OneProcess(Case setup) {
  setup.zero.reset();
  setup.dp = 1;
  setup.sharded_construction = false;
  setup.activations = nullptr;
  return Train(setup);
}

double Distance(const Outcome& a, const Outcome& b) {
  double difference = 0;
  double norm = 0;
  EXPECT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, values] : b.weights) {
    const std::vector<double>& other = a.weights.at(name);
    EXPECT_EQ(other.size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(other[i] - values[i], 2);
      norm += std::pow(values[i], 2);
    }
  }
  return std::sqrt(difference / norm);
}

void ExpectSameBits(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(b.losses.size(), static_cast<size_t>(kSteps * kMicroBatches));
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_TRUE(a.weights == b.weights) << "weights differ by " << Distance(a, b);
}

ZeroOptions Stage(int stage, bool offload = false) {
  ZeroOptions options{.stage = stage, .bucket_cap_mb = 0.01};
  options.offload_optimizer = offload;
  options.offload_parameters = offload && stage == 3;
  return options;
}

// --- The matrix ----------------------------------------------------------------------------------

struct Cell {
  int stage;
  int dp;
  bool offload;
  DType dtype;
};

std::vector<Cell> Cells() {
  std::vector<Cell> cells;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int dp : {1, 2, 4}) {
      for (const bool offload : {false, true}) {
        if (offload && stage == 0) continue;
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
          cells.push_back({stage, dp, offload, dtype});
        }
      }
    }
  }
  return cells;
}

const Outcome& Reference(DType dtype) {
  static std::map<DType, Outcome> outcomes;
  const auto found = outcomes.find(dtype);
  if (found != outcomes.end()) return found->second;
  return outcomes[dtype] = OneProcess({.dtype = dtype});
}

class MatrixTest : public testing::TestWithParam<Cell> {};

TEST_P(MatrixTest, GivesTheBitsOfOneProcess) {
  const Cell& cell = GetParam();
  Case setup{.dp = cell.dp, .dtype = cell.dtype, .zero = Stage(cell.stage, cell.offload)};
  setup.sharded_construction = cell.stage == 3;
  setup.recompute = cell.dp == 2;  // which changes no bit
  ExpectSameBits(Train(setup), Reference(cell.dtype));
}

INSTANTIATE_TEST_SUITE_P(Zero, MatrixTest, testing::ValuesIn(Cells()), [](const auto& info) {
  return Concat("stage", info.param.stage, "_dp", info.param.dp,
                info.param.offload ? "_offload_" : "_", info.param.dtype);
});

TEST(ZeroTest, OneRankAccumulatesInOrderLikeOneProcess) {
  const Outcome one = OneProcess({.deterministic = false});
  EXPECT_FALSE(one.weights == Reference(DType::kFloat32).weights);  // another order of sums
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool offload : {false, true}) {
      if (offload && stage == 0) continue;
      SCOPED_TRACE(Concat("stage ", stage, " off-load ", offload));
      ExpectSameBits(Train({.deterministic = false, .zero = Stage(stage, offload)}), one);
    }
  }
}

TEST(ZeroTest, RanksAgreeWithOneProcessToRounding) {
  const Outcome one = OneProcess({.deterministic = false});
  for (const int stage : {1, 2, 3}) {
    for (const int dp : {2, 4}) {
      SCOPED_TRACE(Concat("stage ", stage, " dp ", dp));
      const Outcome outcome =
          Train({.dp = dp, .deterministic = false, .zero = Stage(stage, dp == 2)});
      for (size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(outcome.losses[i], one.losses[i], 2e-6 * one.losses[i]);
      }
      for (size_t i = 0; i < one.norms.size(); ++i) {
        EXPECT_NEAR(outcome.norms[i], one.norms[i], 2e-6 * one.norms[i]);
      }
      EXPECT_LE(Distance(outcome, one), 2e-6);
    }
  }
}

// --- Families ------------------------------------------------------------------------------------

class FamilyTest : public testing::TestWithParam<FamilyCase> {};

TEST_P(FamilyTest, GivesTheBitsOfOneProcess) {
  Case setup{.family = GetParam(), .find_unused = true};
  const Outcome one = OneProcess(setup);
  setup.dp = 2;
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(Concat("stage ", stage));
    setup.zero = Stage(stage, stage == 2);
    setup.sharded_construction = stage == 3;
    setup.recompute = stage == 3;
    ExpectSameBits(Train(setup), one);
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, FamilyTest, testing::ValuesIn(FamilyCases()),
                         [](const auto& info) { return info.param.name; });

// --- Other layouts and options -------------------------------------------------------------------

TEST(ZeroTest, TensorParallelRanksShardTheirParts) {
  for (const bool sequence_parallel : {false, true}) {
    Case plain{.dp = 2, .tp = 2, .sequence_parallel = sequence_parallel};
    const Outcome expected = Train(plain);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(Concat("stage ", stage, " sequence_parallel ", sequence_parallel));
      Case sharded = plain;
      sharded.zero = Stage(stage, stage == 2);
      sharded.sharded_construction = stage == 3;
      ExpectSameBits(Train(sharded), expected);
    }
  }
}

TEST(ZeroTest, UnevenTensorParallelParts) {  // 4 heads over 3 ranks: buckets of other sizes
  Case plain{.dp = 2, .tp = 3, .sequence_parallel = true};
  const Outcome expected = Train(plain);
  for (const int stage : {1, 3}) {
    plain.zero = Stage(stage);
    ExpectSameBits(Train(plain), expected);
  }
}

TEST(ZeroTest, HowUnitsAreMadeAndGatheredChangesNoBit) {
  const Outcome& one = Reference(DType::kFloat32);
  std::vector<ZeroOptions> variants(10, Stage(3));
  variants[0].backward_prefetch = dist::BackwardPrefetch::kNone;
  variants[0].forward_prefetch = false;
  variants[1].backward_prefetch = dist::BackwardPrefetch::kPost;
  variants[2].limit_all_gathers = false;
  variants[3].reshard_after_forward = false;
  variants[4].persistence_threshold = 600;
  variants[5].auto_wrap_classes = {"TransformerBlock"};
  variants[6].auto_wrap_classes = {"SelfAttention", "Mlp"};
  variants[7].auto_wrap_min_params = 2000;
  variants[8].overlap = false;
  variants[9].max_live_elements = 1;
  for (size_t i = 0; i < variants.size(); ++i) {
    SCOPED_TRACE(Concat("variant ", i));
    dist::GatherCounts counts;
    std::vector<std::string> units;
    Case setup{.dp = 2, .recompute = i % 2 == 1, .zero = variants[i]};
    setup.inspect = [&](ParameterStore& store, models::Model&) {
      const static std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
      const std::lock_guard<std::mutex> lock(*mutex);
      counts = store.gather_counts();
      units = store.UnitNames();
    };
    ExpectSameBits(Train(setup), one);
    EXPECT_GT(counts.gathers, kSteps * 2 * 3);
    if (i == 0 || i == 9) {
      EXPECT_EQ(counts.prefetched, 0);
    } else {
      EXPECT_GT(counts.prefetched, kSteps);
    }
    if (i == 0 || i == 5) {
      EXPECT_EQ(units,
                (std::vector<std::string>{"transformer.wte", "transformer.wpe", "transformer.h.0",
                                          "transformer.h.1", "transformer.h.2", "transformer.ln_f",
                                          "transformer.wte.weight"}));
    }
  }
  Case unknown{.zero = Stage(3)};
  unknown.zero->auto_wrap_classes = {"Transformer-Block"};
  try {
    Train(unknown);
    FAIL() << "an unknown class is refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("'Transformer-Block', and no module of the model is one; there are: "
                        "ColumnParallelLinear, Dropout, LayerNorm, Mlp, ReplicatedEmbedding, "
                        "RowParallelLinear, SelfAttention, TransformerBlock, "
                        "VocabParallelEmbedding"),
              std::string::npos)
        << error.what();
  }
}

TEST(ZeroTest, PartOfTheStatesInHostMemory) {
  for (const double fraction : {0.0, 0.3, 0.7}) {
    ZeroOptions options = Stage(2, true);
    options.offload_fraction = fraction;
    const int64_t before = Allocator::For(Device::Host()).stats().allocations;
    ExpectSameBits(Train({.dp = 2, .zero = options}), Reference(DType::kFloat32));
    EXPECT_EQ(Allocator::For(Device::Host()).stats().allocations > before, fraction > 0);
  }
}

TEST(ZeroTest, UpdatesDuringTheBackwardPass) {
  // Nothing is clipped then, so that the reference does not either.
  const Outcome one = OneProcess({.early = true});
  EXPECT_FALSE(one.weights == Reference(DType::kFloat32).weights);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    ExpectSameBits(Train({.dp = 2, .zero = Stage(stage, true), .early = true}), one);
  }
}

// --- Some of the parameters ----------------------------------------------------------------------

bool Contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

struct Subset {
  std::string name;
  bool (*trains)(const std::string& weight);
};

const std::vector<Subset>& Subsets() {
  static const auto* const subsets = new std::vector<Subset>{
      {"all_but_the_embedding", [](const std::string& w) { return !Contains(w, "wte"); }},
      {"the_end", [](const std::string& w) { return Contains(w, "ln_f"); }},
      {"the_embedding", [](const std::string& w) { return Contains(w, "wte"); }},
      {"a_block", [](const std::string& w) { return Contains(w, "h.1."); }},
      {"biases", [](const std::string& w) { return Contains(w, "bias"); }},
      {"all_but_biases", [](const std::string& w) { return !Contains(w, "bias"); }}};
  return *subsets;
}

// What is frozen has neither gradient nor state, nor a place where gradients lie, but is cut where
// parameters are.
void ExpectNoCost(const Subset& subset, const ZeroOptions& options, ParameterStore& store,
                  models::Model& model) {
  std::set<std::string> trained;
  for (nn::Parameter* p : model.Parameters()) {
    const std::string& weight = p->tied_to != nullptr ? p->tied_to->name : p->name;
    if (subset.trains(weight)) trained.insert(weight);
    EXPECT_EQ(RequiresGrad(p->tensor), subset.trains(weight)) << p->name;
    if (options.shards_parameters()) {
      EXPECT_NE(dist::ParameterShard::Of(p->tensor), nullptr) << p->name;
    }
  }
  EXPECT_LT(trained.size(), model.StateDict().size());
  store.optimizer().VisitState(
      [&](const std::string& parameter, const std::string& state, const Tensor&, const Placement&) {
        EXPECT_TRUE(parameter.empty() || trained.count(parameter) > 0) << parameter << state;
      });
  std::set<std::string> in_buckets;
  for (const std::vector<std::string>& names : store.BucketNames()) {
    size_t trains = 0;
    for (const std::string& name : names) {
      const std::string weight = name.substr(0, name.find(" (tied)"));
      if (trained.count(weight) == 0) continue;
      in_buckets.insert(weight);
      ++trains;
    }
    if (!options.shards_parameters() || trains > 0) {
      EXPECT_EQ(trains, names.size()) << names.front();
    }
  }
  EXPECT_EQ(in_buckets, trained);
}

class SubsetTest : public testing::TestWithParam<Subset> {};

// Under every policy the bits of one process; and a checkpoint, in which everything is, continues
// under any other.
TEST_P(SubsetTest, TrainsAndGoesOnLikeOneProcess) {
  const Subset& subset = GetParam();
  const std::string directory = JoinPath(testing::TempDir(), "zero_subset_" + subset.name);
  const Outcome one = OneProcess({.trains = subset.trains});
  EXPECT_FALSE(one.weights == Reference(DType::kFloat32).weights);
  std::vector<Case> cases;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool offload : {false, true}) {
      if (offload && stage == 0) continue;
      Case setup{.dp = stage == 1 ? 4 : 2, .zero = Stage(stage, offload)};
      setup.sharded_construction = stage == 3 && !offload;
      setup.trains = subset.trains;
      cases.push_back(setup);
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    Case saves = cases[i];
    SCOPED_TRACE(Concat("stage ", saves.zero->stage, " off-load ", saves.zero->offload_optimizer));
    saves.save_to = directory;
    saves.inspect = [&](ParameterStore& store, models::Model& model) {
      ExpectNoCost(subset, *saves.zero, store, model);
    };
    ExpectSameBits(Train(saves), one);
    const auto checkpoint = dist::Checkpoint::Open(directory);
    ASSERT_TRUE(checkpoint.ok()) << Message(checkpoint.status());
    for (const auto& [name, values] : one.weights) {
      EXPECT_EQ(checkpoint->entries().count("model." + name), 1u) << name;
      EXPECT_EQ(checkpoint->entries().count("optimizer." + name + ".exp_avg"),
                subset.trains(name) ? 1u : 0u)
          << name;
    }
    Case loads = cases[(i + 3) % cases.size()];
    loads.resume_from = directory;
    EXPECT_TRUE(Train(loads).weights == one.weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Zero, SubsetTest, testing::ValuesIn(Subsets()),
                         [](const auto& info) { return info.param.name; });

TEST(ZeroTest, WhatStaysWholeMayBeFrozen) {
  const auto trains = [](const std::string& weight) { return !Contains(weight, "mlp"); };
  const Outcome one = OneProcess({.whole_matrices = true, .trains = trains});
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    Case setup{.dp = 2, .zero = Stage(stage), .whole_matrices = true};
    setup.trains = trains;
    ExpectSameBits(Train(setup), one);
  }
}

TEST(ZeroTest, HalfPrecisionGradients) {
  Case setup{.dtype = DType::kBFloat16, .grad_dtype = DType::kBFloat16};
  const Outcome one = OneProcess(setup);
  EXPECT_FALSE(one.weights == Reference(DType::kBFloat16).weights);
  setup.dp = 2;
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    setup.zero = Stage(stage, stage == 3);
    ExpectSameBits(Train(setup), one);
  }
}

TEST(ZeroTest, GradientsTravelInAnotherDtype) {
  const Outcome one = OneProcess({.deterministic = false});
  Case setup{.dp = 2, .deterministic = false, .zero = Stage(2)};
  setup.zero->communication_dtype = DType::kBFloat16;
  const Outcome outcome = Train(setup);
  EXPECT_FALSE(outcome.weights == one.weights);
  for (size_t i = 0; i < one.norms.size(); ++i) {
    EXPECT_NEAR(outcome.norms[i], one.norms[i], 0.01 * one.norms[i]);
  }
}

TEST(ZeroTest, RecomputationWithActivationsElsewhere) {
  const Outcome expected = Train({.dp = 1, .tp = 2});
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute);
    const int64_t before = Allocator::For(Device::Host()).stats().allocations;
    Case setup{.dp = 1, .tp = 2, .recompute = recompute, .zero = Stage(3)};
    Outcome outcome;
    RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
      Case mine = setup;
      const auto group = world->Split(0, world->rank(), "activations");
      dist::ActivationStoreOptions options{.offload = true, .min_elements = 64};
      if (recompute) options.partition = group;  // what is equal on all ranks: regions' inputs
      mine.activations = std::make_shared<dist::ActivationStore>(options);
      RankRun(mine, world, &outcome).Train();
    });
    ExpectSameBits(outcome, expected);
    EXPECT_GT(Allocator::For(Device::Host()).stats().allocations, before);
  }
}

// --- Whole parameters ----------------------------------------------------------------------------

TEST(ZeroTest, WholeMatricesGiveTheBitsOfOneProcess) {
  const Outcome one = OneProcess({.whole_matrices = true});
  for (const int stage : {0, 1, 2, 3}) {
    for (const int dp : {1, 2, 4}) {
      for (const bool offload : {false, true}) {
        if (offload && stage == 0) continue;
        SCOPED_TRACE(Concat("stage ", stage, " dp ", dp, " off-load ", offload));
        Case setup{.dp = dp, .zero = Stage(stage, offload), .whole_matrices = true};
        setup.sharded_construction = stage == 3;
        ExpectSameBits(Train(setup), one);
      }
    }
  }
  // Sums in the ranks' order agree to rounding.
  Case ranks{.dp = 2, .deterministic = false, .zero = Stage(2), .whole_matrices = true};
  const Outcome in_order = OneProcess({.deterministic = false, .whole_matrices = true});
  EXPECT_LE(Distance(Train(ranks), in_order), 1e-5);
}

TEST(ZeroTest, WholeMatricesHaveOneOwnerEach) {
  std::map<std::string, int> owners;
  std::map<int, int64_t> elements;  // by rank
  Case setup{.dp = 4, .zero = Stage(2), .whole_matrices = true};
  std::mutex mutex;
  setup.inspect = [&](ParameterStore& store, models::Model& model) {
    static std::atomic<int> ranks = 0;
    const int rank = ranks++;
    const std::lock_guard<std::mutex> lock(mutex);
    store.optimizer().VisitState([&](const std::string& parameter, const std::string& state,
                                     const Tensor& t, const Placement&) {
      if (state != "momentum") return;
      const nn::Parameter& p = *model.FindParameter(parameter);
      if (p.tensor.ndim() < 2) return;
      EXPECT_EQ(t.shape(), p.tensor.shape()) << parameter;
      ++owners[parameter];
      elements[rank] += t.numel();
    });
  };
  Train(setup);
  EXPECT_EQ(owners.size(), 2u + 3 * 4);
  for (const auto& [name, count] : owners) EXPECT_EQ(count, 1) << name;
  // The embedding, more than half of all, is one rank's; the others share out the blocks.
  ASSERT_EQ(elements.size(), 4u);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [rank, count] : elements) least = std::min(least, count);
  EXPECT_GT(least, 3 * 12 * 24 * 24 / 3 * 3 / 4);
}

TEST(ZeroTest, ACheckpointOfWholeMatricesLoadsUnderAnyStage) {
  const std::string directory = JoinPath(testing::TempDir(), "zero_whole_checkpoint");
  const Outcome one = OneProcess({.whole_matrices = true});
  Case saves{.dp = 4, .zero = Stage(2), .whole_matrices = true};
  saves.save_to = directory;
  ExpectSameBits(Train(saves), one);
  for (const auto& [stage, dp] : {std::pair{0, 1}, {1, 2}, {3, 2}, {3, 4}}) {
    SCOPED_TRACE(Concat("stage ", stage, " dp ", dp));
    Case loads{.dp = dp, .zero = Stage(stage, stage == 1), .whole_matrices = true};
    loads.resume_from = directory;
    EXPECT_TRUE(Train(loads).weights == one.weights);
  }
}

TEST(ZeroTest, WholeMatricesOfTensorParallelParts) {
  Case plain{.dp = 2, .tp = 2, .sequence_parallel = true, .whole_matrices = true};
  const Outcome expected = Train(plain);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    plain.zero = Stage(stage, stage == 2);
    ExpectSameBits(Train(plain), expected);
  }
}

// --- Reading and writing -------------------------------------------------------------------------

TEST(ZeroTest, EvaluatesGathersAndLoads) {
  Case setup{.dp = 2, .zero = Stage(3), .sharded_construction = true};
  setup.inspect = [&](ParameterStore& store, models::Model& model) {
    models::RunOptions options;
    options.loss_reduction = LossReduction::kSum;
    const auto evaluate = [&] {
      const NoGrad no_grad;
      return model.Run(setup.family.inputs(99), options).at(keys::kLoss).Item();
    };
    const double before = evaluate();
    const std::map<std::string, Tensor> weights = store.FullStateDict(/*rank0_only=*/false);
    EXPECT_EQ(evaluate(), before);
    // Written through the parameters' own tensors, which are gathered for it and cut again.
    {
      const auto scope = store.Gather({}, GatherFor::kWriting);
      for (nn::Parameter* p : model.Parameters()) {
        if (p->tied_to == nullptr) Fill(p->tensor.Detach(), 0.125);
      }
    }
    for (const auto& [name, t] : store.FullStateDict(false)) {
      for (const double value : t.ToVector<double>()) ASSERT_EQ(value, 0.125) << name;
    }
    {
      const auto scope = store.Gather({}, GatherFor::kOverwriting);
      const Status loaded = model.LoadStateDict(weights);
      EXPECT_TRUE(loaded.ok()) << Message(loaded);
      EXPECT_EQ(evaluate(), before);  // passes give back what they gathered, and no more
    }
    EXPECT_EQ(evaluate(), before);
  };
  ExpectSameBits(Train(setup), Reference(DType::kFloat32));
}

TEST(ZeroTest, ACheckpointOfAnyStageLoadsUnderAnyOther) {
  const std::string directory = JoinPath(testing::TempDir(), "zero_checkpoint");
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Outcome& whole = Reference(dtype);
    struct Side {
      int stage;  // -1: without ZeRO
      int dp;
      bool offload;
    };
    const std::vector<Side> sides = {{-1, 1, false}, {1, 2, false}, {2, 4, true},
                                     {3, 2, true},   {3, 4, false}, {0, 2, false}};
    for (const Side& saves : sides) {
      Case setup{.dp = saves.dp, .dtype = dtype};
      if (saves.stage >= 0) setup.zero = Stage(saves.stage, saves.offload);
      setup.save_to = directory;
      ExpectSameBits(Train(setup), whole);
      for (const Side& loads : sides) {
        SCOPED_TRACE(Concat("saved by stage ", saves.stage, " x ", saves.dp, ", loaded by stage ",
                            loads.stage, " x ", loads.dp));
        Case resumed{.dp = loads.dp, .dtype = dtype};
        if (loads.stage >= 0) resumed.zero = Stage(loads.stage, loads.offload);
        resumed.resume_from = directory;
        const Outcome outcome = Train(resumed);
        EXPECT_EQ(outcome.losses,
                  std::vector<double>(whole.losses.begin() + kMicroBatches, whole.losses.end()));
        EXPECT_TRUE(outcome.weights == whole.weights);
      }
    }
  }
}

TEST(ZeroTest, ACheckpointOfTensorParallelPartsLoadsIntoOneProcess) {
  const std::string directory = JoinPath(testing::TempDir(), "zero_tp_checkpoint");
  Case setup{.dp = 2, .tp = 2, .zero = Stage(3)};
  setup.save_to = directory;
  Train(setup);
  Case one{.resume_from = directory};
  const Outcome outcome = Train(one);
  const Outcome& whole = Reference(DType::kFloat32);
  for (size_t i = 0; i < outcome.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], whole.losses[i + kMicroBatches], 4e-6 * whole.losses[i]);
  }
}

// One rank alone: nothing hangs, and nothing is gathered.
TEST(ZeroTest, ReadingACutParameterOutsideOfAScopeIsAnError) {
  std::string error;
  Case setup{.dp = 2, .zero = Stage(3), .sharded_construction = true};
  setup.inspect = [&](ParameterStore& store, models::Model& model) {
    const nn::Parameter& p = *model.FindParameter("transformer.wte.weight");
    const auto read = [&] { return p.tensor.ToVector<float>(); };
    std::vector<float> values;
    {
      const auto scope = store.Gather({model.FindParameter("transformer.wte.weight")});
      const auto again = store.Gather();
      values = read();
    }
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!error.empty()) return;  // the other rank has read
    try {
      read();
    } catch (const Error& e) {
      error = e.what();
    }
  };
  Train(setup);
  for (const char* part : {"'transformer.wte.weight'", "not gathered on rank", "GatheredScope"}) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

// --- Memory --------------------------------------------------------------------------------------

nlohmann::json MediumConfig(int layers) {
  return {{"model_type", "gpt2"}, {"vocab_size", 128}, {"n_positions", 16},
          {"n_embd", 256},        {"n_layer", layers}, {"n_head", 4}};
}

// Bytes per parameter and rank on the compute device, with gradients, between Finish and Step.
// Parameters with `frozen` in their names do not train.
double BytesPerParameter(int stage, int dp, DType dtype, std::optional<DType> grad_dtype,
                         bool offload, const char* frozen = nullptr) {
  double bytes = 0;
  Allocator& allocator = Allocator::For(Device::Cpu());
  RunRanks(dp, [&](const std::shared_ptr<Communicator>& world) {
    world->Barrier();
    const int64_t before = allocator.stats().current_bytes;
    world->Barrier();
    ZeroOptions options{.stage = stage, .bucket_cap_mb = 4};
    options.offload_optimizer = offload;
    options.offload_parameters = offload && stage == 3;
    nn::BuildContext build{.dtype = dtype, .initialise = false};
    dist::CutWhileBuilding(options, {.data = world}, &build);
    const auto model = *models::BuildModel(MediumConfig(4), build);
    if (grad_dtype) {
      for (nn::Parameter* p : model->Parameters()) RequireGrad(p->tensor, *grad_dtype);
    }
    if (frozen != nullptr) model->Freeze(frozen);
    ParameterStore store(*model, {{optim::ParametersOf(*model), 0.1}}, MakeAdamW, {.data = world},
                         options);
    const auto step = [&] {
      store.BeginStep(1);
      store.BeginMicroBatch(0);
      {
        const std::vector<int64_t> ids(16, 1 + world->rank());
        Backward(model
                     ->Run({{keys::kInputIds, Tensor::FromVector(ids, {1, 16})},
                            {keys::kTargets, Tensor::FromVector(ids, {1, 16})}},
                           {})
                     .at(keys::kLoss));
      }
      store.FinishGradients();
    };
    step();
    world->Barrier();
    if (world->rank() == 0) {
      bytes = static_cast<double>(allocator.stats().current_bytes - before) /
              static_cast<double>(model->ParameterCount()) / dp;
    }
    world->Barrier();
    store.Step();
  });
  return bytes;
}

TEST(ZeroTest, MemoryFollowsTheLaw) {
  for (const int dp : {2, 4}) {
    const double n = dp;
    struct Row {
      DType dtype;
      std::optional<DType> grad_dtype;
      std::vector<double> bytes;  // of stages 0 to 3
    };
    const DType half = DType::kBFloat16;
    for (const Row& row : {Row{DType::kFloat32, {}, {16, 8 + 8 / n, 4 + 12 / n, 16 / n}},
                           Row{half, {}, {18, 6 + 12 / n, 2 + 16 / n, 18 / n}},
                           Row{half, half, {16, 4 + 12 / n, 2 + 14 / n, 16 / n}}}) {
      for (int stage = 0; stage <= 3; ++stage) {
        const double bytes =
            BytesPerParameter(stage, dp, row.dtype, row.grad_dtype, /*offload=*/false);
        EXPECT_NEAR(bytes, row.bytes[stage], 0.05 * row.bytes[stage])
            << "stage " << stage << " dp " << dp << " " << row.dtype;
      }
    }
  }
}

// Frozen parameters take what they are themselves, or their share of it.
TEST(ZeroTest, FrozenParametersTakeTheirElementsOnly) {
  for (const char* frozen : {"mlp", "weight"}) {
    const auto model = *models::BuildModel(MediumConfig(4), {.device = Device::Meta()});
    const auto all = static_cast<double>(model->ParameterCount());
    model->Freeze(frozen);
    const double trains = static_cast<double>(model->ParameterCount(true)) / all;
    EXPECT_LT(trains, 0.6);
    for (const int dp : {2, 4}) {
      const double n = dp;
      const std::vector<double> trained = {16, 8 + 8 / n, 4 + 12 / n, 16 / n};
      const std::vector<double> still = {4, 4, 4, 4 / n};
      for (size_t stage = 0; stage <= 3; ++stage) {
        const double expected = trains * trained[stage] + (1 - trains) * still[stage];
        EXPECT_NEAR(BytesPerParameter(static_cast<int>(stage), dp, DType::kFloat32, {},
                                      /*offload=*/false, frozen),
                    expected, 0.05 * expected)
            << "stage " << stage << " dp " << dp << " without " << frozen;
      }
    }
  }
}

TEST(ZeroTest, OffloadedTheDeviceHoldsParametersOnly) {
  EXPECT_NEAR(BytesPerParameter(2, 2, DType::kFloat32, {}, true), 4, 0.2);
  EXPECT_LE(BytesPerParameter(3, 2, DType::kFloat32, {}, true), 0.2);
}

// States of 16 bytes per parameter do not fit the limit, of which they are four times as much.
TEST(ZeroTest, TrainsInsideALimitWithOffload) {
  Allocator& allocator = Allocator::For(Device::Cpu());
  const auto train = [&](bool offload) {
    const auto world = SingleProcessCommunicator();
    ZeroOptions options{.stage = 3};
    options.offload_optimizer = offload;
    options.offload_parameters = offload;
    nn::BuildContext build;
    dist::CutWhileBuilding(options, {.data = world}, &build);
    const auto model = *models::BuildModel(MediumConfig(8), build);
    ParameterStore store(*model, {{optim::ParametersOf(*model), 0.1}}, MakeAdamW, {.data = world},
                         options);
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      store.BeginStep(1);
      store.BeginMicroBatch(0);
      const std::vector<int64_t> ids(16, 3);
      const Tensor loss = model
                              ->Run({{keys::kInputIds, Tensor::FromVector(ids, {1, 16})},
                                     {keys::kTargets, Tensor::FromVector(ids, {1, 16})}},
                                    {})
                              .at(keys::kLoss);
      losses.push_back(loss.Item());
      Backward(loss);
      store.FinishGradients();
      store.Step({.clip_factor = store.Clip({.max_norm = 1}).factor});
    }
    return losses;
  };
  const std::vector<double> free = train(false);
  EXPECT_LT(free.back(), free.front());
  const auto meta = *models::BuildModel(MediumConfig(8), {.device = Device::Meta()});
  const int64_t states = meta->ParameterCount() * 16;
  allocator.SetLimit(allocator.stats().current_bytes + states / 4);
  EXPECT_THROW(train(false), OutOfMemoryError);
  std::vector<double> losses;
  EXPECT_NO_THROW(losses = train(true));
  allocator.SetLimit(0);
  EXPECT_EQ(losses, free);
}

// --- Errors --------------------------------------------------------------------------------------

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(ZeroTest, AMissingGradientNamesItsParameter) {
  for (const int stage : {0, 1, 2, 3}) {
    const std::string error = ErrorOf([&] {
      RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
        const auto model = *models::BuildModel(Gpt().config, {});
        ParameterStore store(*model, {{optim::ParametersOf(*model)}}, MakeAdamW, {.data = world},
                             Stage(stage));
        store.BeginStep(1);
        store.BeginMicroBatch(0);
        store.FinishGradients();
      });
    });
    EXPECT_NE(error.find("had no gradient"), std::string::npos) << error;
    EXPECT_NE(error.find("transformer."), std::string::npos) << error;
  }
}

// Three weights: one that every rank uses, one that the last rank uses, and one that none does.
class Weights : public nn::Module {
 public:
  explicit Weights(const nn::Scope& scope) : Module(scope) {
    for (const char* name : {"every", "last", "none"}) {
      AddParameter(name, Placement::Whole({5, 3}), nn::Init::Ones());
    }
  }
  Tensor Forward(bool last) const {
    const Tensor& every = own_parameters()[0]->tensor;
    return Call(every,
                [&] { return last ? Mul(every, own_parameters()[1]->tensor) : Mul(every, 1.0); });
  }
};

TEST(ZeroTest, WhatNoRankUsesStaysAsItIs) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
      Weights model(nn::Scope::Root({}));
      optim::ParameterGroup group{.parameters = {}, .weight_decay = 0.5};
      for (nn::Parameter* p : model.Parameters()) group.parameters.push_back({p->name, p->tensor});
      ZeroOptions options{.stage = stage};
      options.find_unused_parameters = true;
      ParameterStore store(model, {group}, MakeAdamW, {.data = world}, options);
      store.Start();
      store.BeginStep(1);
      store.BeginMicroBatch(0);
      Backward({model.Forward(world->rank() == 1)}, {Full({5, 3}, 1.0)});
      store.FinishGradients();
      EXPECT_FLOAT_EQ(store.Clip({}).norm.Item(), std::sqrt(15.0 * 4 + 15.0));
      store.Step();
      for (const auto& [name, t] : store.FullStateDict(false)) {
        for (const double value : t.ToVector<double>()) {
          // Decay by lr * 0.5, and Adam's first step of lr against the gradient.
          EXPECT_NEAR(value, name == "none" ? 1.0 : 1.0 - 0.0005 - 0.001, 1e-6) << name;
        }
      }
    });
  }
}

TEST(ZeroTest, ARankThatFailsEndsTheOthers) {
  const std::string error = ErrorOf([&] {
    RunRanks(2, [&](const std::shared_ptr<Communicator>& world) {
      Outcome outcome;
      Case setup{.dp = 2, .zero = Stage(3)};
      setup.inspect = [&](ParameterStore&, models::Model&) {
        if (world->rank() == 1) throw std::runtime_error("rank 1 has no more paper");
      };
      RankRun(setup, world, &outcome).Train();
    });
  });
  EXPECT_EQ(error, "rank 1 has no more paper");
}

TEST(ZeroTest, WhatDoesNotGoTogetherIsRefused) {
  const auto error = [](Case setup) { return ErrorOf([&] { Train(setup); }); };
  EXPECT_NE(error({.dp = 3, .zero = Stage(1)}).find("power of two"), std::string::npos);
  EXPECT_NE(error({.zero = Stage(4)}).find("stage 4"), std::string::npos);
  EXPECT_NE(error({.zero = Stage(0, true)}).find("off-loading"), std::string::npos);
  Case travelling{.zero = Stage(1)};
  travelling.zero->communication_dtype = DType::kBFloat16;
  EXPECT_NE(error(travelling).find("communication_dtype"), std::string::npos);
}

}  // namespace
}  // namespace tessera
