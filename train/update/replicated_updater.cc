#include "train/update/replicated_updater.h"

#include <utility>

#include "autograd/autograd.h"
#include "dist/ddp/replicas.h"
#include "train/update/optimizer_groups.h"
#include "train/update/pipeline_norm.h"

namespace tessera::train {
namespace {

std::vector<dist::ReducedLeaf> LeavesOf(const std::vector<optim::Parameter>& parameters) {
  std::vector<dist::ReducedLeaf> leaves;
  for (const optim::Parameter& p : parameters) {
    leaves.push_back({p.name, p.tensor});
    for (const Tensor& tied : p.tied) leaves.push_back({p.name + " (tied)", tied});
  }
  return leaves;
}

std::vector<dist::ReducedLeaf> LeavesOf(const std::vector<nn::Parameter*>& parameters) {
  std::vector<dist::ReducedLeaf> leaves;
  for (const nn::Parameter* p : parameters) leaves.push_back({p->name, p->tensor});
  return leaves;
}

}  // namespace

ReplicatedUpdater::ReplicatedUpdater(const RunConfig& config, models::Model& model,
                                     const dist::Mesh& mesh, const OptimizerMaker& make_optimizer)
    : config_(config),
      model_(model),
      mesh_(mesh),
      stage_(StageOf(model)),
      parameters_(OptimizedParameters(model)),
      optimizer_(make_optimizer(OptimizerGroups(config, parameters_))) {
  model_.VisitParameters([&](nn::Parameter& p) {
    if (p.placement.is_whole()) replicated_.insert(p.name);
  });
}

// One process that accumulates in order needs no reducer.
void ReplicatedUpdater::Start() {
  dist::BroadcastParameters(model_, mesh_.dp());
  const bool in_tree = config_.deterministic && config_.accumulation_steps() > 1;
  if (mesh_.dp()->size() == 1 && !in_tree) return;
  // A weight that several stages hold is not used on each of them.
  const bool shared = stage_ != nullptr && !stage_->SharedWeights().empty();
  const dist::ReducerOptions options{
      .bucket_cap_mb = config_.bucket_cap_mb,
      .deterministic = config_.deterministic,
      .find_unused_parameters = config_.find_unused_parameters || shared,
      .static_graph = config_.static_graph,
      .check_reduction = config_.check_reduction,
      .gradient_as_bucket_view = config_.gradient_as_bucket_view,
      .overlap = config_.overlap_comm};
  const int chunks = stage_ == nullptr ? 1 : static_cast<int>(std::ssize(stage_->chunks()));
  for (int c = 0; c < chunks; ++c) {
    reducers_.push_back(std::make_unique<dist::GradientReducer>(
        stage_ == nullptr ? LeavesOf(parameters_) : LeavesOf(stage_->LeavesOfChunk(c)), mesh_.dp(),
        options));
  }
}

void ReplicatedUpdater::BeginStep(int64_t micro_batches) {
  for (const auto& reducer : reducers_) reducer->BeginStep(micro_batches);
}

void ReplicatedUpdater::BeginMicroBatch(int chunk, int64_t m) {
  if (!reducers_.empty()) reducers_[static_cast<size_t>(chunk)]->BeginMicroBatch(m);
}

void ReplicatedUpdater::FinishGradients() {
  for (const auto& reducer : reducers_) reducer->Finish();
  dist::SumPartialGradients(model_);
  if (stage_ != nullptr) stage_->JoinTiedGradients();
}

optim::ClipResult ReplicatedUpdater::Clip(optim::ClipOptions options) {
  const auto counted = [&](const optim::Parameter& p) {
    return mesh_.tp()->rank() == 0 || replicated_.count(p.name) == 0;
  };
  if (stage_ != nullptr) {
    optim::JoinTiedGradients(parameters_);  // of uses on this stage
    const Tensor squared = SquaredNormOverStages(*stage_, parameters_, counted);
    mesh_.tp()->AllReduce(squared, ReduceOp::kSum)->Wait();
    return optim::ClipFromSquaredNorm(squared, options);
  }
  if (mesh_.tp()->size() > 1) {
    options.reduce = [&](const Tensor& norm) {
      mesh_.tp()->AllReduce(norm, ReduceOp::kSum)->Wait();
    };
    options.counted = counted;
  }
  return optim::ClipGradNorm(parameters_, options);
}

void ReplicatedUpdater::Step(const optim::StepInputs& inputs) {
  optimizer_->Step(inputs);
  optimizer_->ZeroGrad();
}

std::vector<dist::CheckpointTensor> ReplicatedUpdater::Tensors() {
  std::vector<dist::CheckpointTensor> tensors;
  model_.VisitParameters([&](nn::Parameter& p) {
    if (p.tied_to != nullptr) return;
    tensors.push_back({"model." + p.name, p.tensor.Detach(), p.placement});
  });
  optimizer_->VisitState([&](const std::string& parameter, const std::string& name, const Tensor& t,
                             const Placement& placement) {
    tensors.push_back({"optimizer." + optim::StateName(parameter, name), t, placement});
  });
  return tensors;
}

}  // namespace tessera::train
