#include "train/update/sharded_updater.h"

#include <utility>

#include "train/update/optimizer_groups.h"
#include "train/update/pipeline_norm.h"

namespace tessera::train {
namespace {

std::vector<nn::Module*> ModulesOf(models::Model& model, const dist::Stage* stage) {
  if (stage == nullptr) return {&model};
  std::vector<nn::Module*> modules;
  for (const auto& chunk : stage->models()) modules.push_back(chunk.get());
  return modules;
}

// Tied weights that lie on several stages.
dist::SharedGradients SharedOverStages(const dist::Stage* stage) {
  if (stage == nullptr || stage->SharedWeights().empty()) return {};
  return {.names = stage->SharedWeights(), .join = [stage](const auto& get, const auto& set) {
            stage->JoinTiedGradients(get, set);
          }};
}

}  // namespace

ShardedUpdater::ShardedUpdater(const RunConfig& config, models::Model& model,
                               const dist::Mesh& mesh, const OptimizerMaker& make_optimizer)
    : mesh_(mesh),
      stage_(StageOf(model)),
      early_(config.cpu_offload && config.max_grad_norm == 0 && !config.scales_loss() &&
             config.pp == 1 && !config.find_unused_parameters) {
  model.VisitParameters([&](nn::Parameter& p) {
    if (p.placement.is_whole()) replicated_.insert(p.name);
  });
  const absl::StatusOr<dist::ZeroOptions> options = config.zero_options();
  TESSERA_CHECK(options.ok(), "zero", Message(options.status()));
  engine_ = std::make_unique<dist::ZeroEngine>(
      ModulesOf(model, stage_), OptimizerGroups(config, OptimizedParameters(model)), make_optimizer,
      mesh.dp(), *options, SharedOverStages(stage_));
}

void ShardedUpdater::BeginStep(int64_t micro_batches) {
  if (early_) {
    engine_->BeginStep(micro_batches, optim::StepInputs{});
  } else {
    engine_->BeginStep(micro_batches);
  }
}

optim::ClipResult ShardedUpdater::Clip(optim::ClipOptions options) {
  const dist::Group& model_ranks = mesh_.model();
  if (model_ranks->size() > 1) {
    options.reduce = [&](const Tensor& norm) {
      model_ranks->AllReduce(norm, ReduceOp::kSum)->Wait();
    };
    options.counted = [&](const optim::Parameter& p) {
      if (stage_ != nullptr && !stage_->Owns(p.name)) return false;
      return mesh_.tp()->rank() == 0 || replicated_.count(p.name) == 0;
    };
  }
  return engine_->Clip(options);
}

void ShardedUpdater::Step(const optim::StepInputs& inputs) {
  engine_->Step(early_ ? optim::StepInputs{} : inputs);
}

}  // namespace tessera::train
