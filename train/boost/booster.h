// SPDX-License-Identifier: Apache-2.0
// Wraps a model, an optimizer, a loss, data and a schedule for training on many ranks in one call
// (Colossal-AI's Booster).
//
//   Booster booster(HybridParallelPlugin{.tp_size = 2, .precision = "fp32"});
//   TESSERA_ASSIGN_OR_RETURN(
//       Boosted boosted,
//       booster.Boost("vit-base", {.name = "HybridAdam", .lr = 3e-4}, criterion,
//                     {.dataset = &train, .batch_size = 32},
//                     optim::CosineAnnealingWarmupLR(3e-4, total_steps, warmup_steps)));
//   auto& [model, optimizer, loss_of, loader, schedule] = boosted;
//   for (int64_t step = 0; step < total_steps; ++step) {
//     TESSERA_ASSIGN_OR_RETURN(const data::Batch batch, loader->Next());
//     const Tensor loss = loss_of(model(batch.tensors), batch.tensors);
//     booster.Backward(loss, optimizer);
//     optimizer.Step();
//     schedule.Step();
//   }
//
// With stages (`pp_size`) a step's passes go through `ExecutePipeline`, which serves without them,
// too. It is all one engine (train/loop/configured_engine.h): the plugin becomes its configuration
// (train/boost/plugins.h). Gradients are gone after `optimizer.Step()`. Accumulation is said
// beforehand, as `gradient_accumulation_steps` of the options: so many calls of Backward make a
// step, and the last one alone communicates (what `no_sync` is for elsewhere).
//
// Calls are collective unless they are accessors. Failures of all ranks are marked as such
// (train/ranks/agreement.h).
#ifndef TESSERA_TRAIN_BOOST_BOOSTER_H_
#define TESSERA_TRAIN_BOOST_BOOSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "core/device.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/mesh/mesh.h"
#include "dist/pipeline/execute_pipeline.h"
#include "nlohmann/json_fwd.hpp"
#include "optim/schedule.h"
#include "train/boost/plugins.h"
#include "train/loop/batch_loader.h"
#include "train/loop/configured_engine.h"
#include "train/loop/initialize.h"

namespace tessera::train {

// An optimizer to be made over what a rank has: a name of the table of optimizers (also
// "HybridAdam", whose states lie where the plugin off-loads them), and its own options.
struct OptimizerChoice {
  std::string name = "adamw";
  double lr = 1e-3;
  double weight_decay = 0;
  JsonMember options = JsonMember::Object();  // {"betas": [0.9, 0.95]}
};

// A dataset's batches, of which every data-parallel rank gets its own.
struct LoaderChoice {
  const data::Dataset* dataset = nullptr;  // nullptr: none; outlives the loader
  int64_t batch_size = 1;                  // rows on this rank
  bool shuffle = true;
  uint64_t seed = 0;
  int64_t first_step = 0;  // counts from 0
};

// What a booster is made with beside its plugin.
struct BoosterOptions {
  dist::Group world = nullptr;  // InitializeOptions'
  std::optional<Device> device = std::nullopt;
  // More keys of a run, by any of their names: {"gradient_checkpointing", "seed", "autocast", ...}.
  JsonMember run = JsonMember::Object();
};

struct ScheduleState;

// The model that Boost gives.
class BoostedModel {
 public:
  // `pass_criterion`: the engine's, which ExecutePipeline fills for its passes.
  BoostedModel(std::shared_ptr<ConfiguredEngine> engine, std::shared_ptr<Criterion> pass_criterion)
      : engine_(std::move(engine)), pass_criterion_(std::move(pass_criterion)) {}
  // A forward pass: what the model returns, `logits` and with labels `loss` among it. Without a
  // tape (NoGrad) without dropout, and under a pipeline, too, the same on all stages.
  models::Bundle operator()(const models::Bundle& batch) const { return engine_->Forward(batch); }
  models::Model& module() const { return engine_->model(); }
  ConfiguredEngine& engine() const { return *engine_; }

 private:
  friend class Booster;
  std::shared_ptr<ConfiguredEngine> engine_;
  std::shared_ptr<Criterion> pass_criterion_;
};

// The optimizer that Boost gives.
class BoostedOptimizer {
 public:
  explicit BoostedOptimizer(std::shared_ptr<ConfiguredEngine> engine)
      : engine_(std::move(engine)) {}
  // Throws Error before the step's backward passes are all done, and where gradients are not finite
  // without loss scaling.
  void Step();
  // Drops the gradients of a step that is under way; after Step there are none. Throws Error
  // between the forward and the backward pass of a later micro-batch.
  void ZeroGrad();
  double grad_norm() const { return engine_->grad_norm(); }
  double learning_rate() const { return engine_->learning_rate(); }
  ConfiguredEngine& engine() const { return *engine_; }

 private:
  std::shared_ptr<ConfiguredEngine> engine_;
};

// The learning rate of the step that comes next; `Step` continues to the one after.
class BoostedSchedule {
 public:
  explicit BoostedSchedule(std::shared_ptr<ScheduleState> state) : state_(std::move(state)) {}
  void Step();
  double learning_rate() const;
  int64_t steps() const;  // how often it was called

 private:
  friend class Booster;
  std::shared_ptr<ScheduleState> state_;
};

struct Boosted {
  BoostedModel model;
  BoostedOptimizer optimizer;
  Criterion criterion;
  std::unique_ptr<BatchLoader> loader;  // nullptr without a dataset
  BoostedSchedule schedule;
};

// What ExecutePipeline gives beside the loss.
struct ExecutePipelineReturns {
  bool outputs = false;  // of every micro-batch, on the last stage
};

class Booster {
 public:
  explicit Booster(Plugin plugin, BoosterOptions options = {});

  // `criterion`: a mean over the rows it is given; nullptr: the model's own loss. Without a
  // schedule the rate stays the optimizer's.
  StatusOr<Boosted> Boost(const ModelSource& model, const OptimizerChoice& optimizer,
                          const Criterion& criterion = nullptr, const LoaderChoice& loader = {},
                          const std::optional<optim::ScheduleConfig>& schedule = std::nullopt);

  void Backward(const Tensor& loss, BoostedOptimizer& optimizer) const;

  // Takes one batch from `next`, cuts it into the plugin's micro-batches along the rows and runs
  // their passes; `optimizer.Step()` is what follows. The loss is the mean over the micro-batches
  // of this data-parallel rank, on all of its stages. `next` gives the same on all ranks that share
  // a model.
  StatusOr<dist::PipelineOutput> ExecutePipeline(const NextBatch& next, BoostedModel& model,
                                                 const Criterion& criterion,
                                                 BoostedOptimizer& optimizer,
                                                 const ExecutePipelineReturns& returns = {}) const;

  // A Hugging Face folder; `tokenizer` may be null.
  Status SaveModel(BoostedModel& model, const std::string& folder,
                   const data::Tokenizer* tokenizer = nullptr) const;
  Status LoadModel(BoostedModel& model, const std::string& folder) const;
  // A directory of dist/checkpoint, loaded under any layout; after the model.
  Status SaveOptimizer(BoostedOptimizer& optimizer, const std::string& directory) const;
  Status LoadOptimizer(BoostedOptimizer& optimizer, const std::string& directory) const;
  // A file of JSON.
  Status SaveLrScheduler(const BoostedSchedule& schedule, const std::string& path) const;
  Status LoadLrScheduler(BoostedSchedule& schedule, const std::string& path) const;

  // Of the last Boost.
  const dist::Mesh& mesh() const { return mesh_; }

 private:
  StatusOr<RunConfig> ConfigOf(const OptimizerChoice& optimizer);
  StatusOr<std::vector<models::Bundle>> Cut(const data::Batch& batch) const;

  const Plugin plugin_;
  const BoosterOptions options_;
  dist::Mesh mesh_;
  std::optional<int64_t> microbatch_size_;
  int64_t num_microbatches_ = 1;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_BOOST_BOOSTER_H_
