// SPDX-License-Identifier: Apache-2.0
// The one owner of what training keeps of a model: parameters, gradients and the optimizer's
// states, on all ranks that share them.
//
//   CutWhileBuilding(options, StoreGroupsOf(mesh), &build);  // where parameters are to be cut
//   auto model = models::BuildModel(config, build);
//   ParameterStore store(*model, optim::SplitByDecay(optim::ParametersOf(*model), {...}),
//                        [](std::vector<optim::ParameterGroup> groups) {
//                          return std::make_unique<optim::AdamW>(std::move(groups), adam);
//                        },
//                        StoreGroupsOf(mesh), options);
//   store.Start();
//   for (each step) {
//     store.optimizer().set_learning_rate(schedule.At(step));
//     store.BeginStep(micro_batches);
//     for (int64_t m = 0; m < micro_batches; ++m) {
//       store.BeginMicroBatch(m);
//       Backward(Loss(m));
//     }
//     store.FinishGradients();
//     const optim::ClipResult clip = store.Clip({.max_norm = 1.0});
//     store.Step({.clip_factor = clip.factor});             // gradients are gone afterwards
//   }
//
// Every rank makes the same calls in the same order. Gradients are summed, never averaged: losses
// have been divided by the targets of the whole step.
//
// The policy (dist/store/zero_options.h) says what data-parallel ranks share out: nothing (stage 0,
// replicas), the optimizer's states (1), gradients too (2), parameters too (3); and what lies in
// host memory. One process that replicates accumulates gradients where they are, and costs nothing.
//
// Shards. Parameters lie one after the other in flat buckets, which are cut into as many equal
// ranges as there are ranks, wherever that falls. The factory is asked for one optimizer per bucket
// over this rank's pieces of its parameters: 1-d leaves with the parameters' names, groups, weight
// decay and lr_scale. So it must be elementwise, but for parameters that `needs_whole` names: each
// of those belongs wholly (this rank's tensor-parallel part) to one rank of the data group, the
// same on all tensor-parallel ranks, whose optimizers may then communicate over them.
//
// Bits. With `deterministic` losses, norms and weights are those of one process, for any policy and
// number of ranks: sums over ranks are a balanced tree (dist/store/gradient_lanes.h), and norms are
// put together chunk by chunk (dist/store/gradient_norm.h). With one rank they are so without it.
//
// Experts that are on some of the data-parallel ranks (StoreGroups::experts) are replicated, or
// shared out, by the ranks that hold the same ones (expert_data). With `deterministic` their
// gradients are kept by the rank whose tokens they are of (nn::Parameter::by_source), summed over
// expert_data, and then added up in the tree: data-parallel ranks are ordered so (dist/mesh/mesh.h)
// that this is the tree over all of them.
//
// Cut parameters. A unit (a block) is gathered before its forward and backward passes, the next one
// while it computes, and released afterwards. In between its parameters have no elements on any
// rank: asking for them is an error, and never a collective. Whoever wants them outside of their
// modules' passes opens a scope (`Gather`), on all ranks together. Forward passes are collective:
// all ranks run as many of them (`forward_is_collective`).
//
// Memory in bytes per parameter with Adam over N ranks: float32 16, 8 + 8/N, 4 + 12/N, 16/N for
// stages 0 to 3; half precision with float32 gradients 18, 6 + 12/N, 2 + 16/N, 18/N; with gradients
// in half 16, 4 + 12/N, 2 + 14/N, 16/N; besides buckets under way and gathered units. Off-loaded,
// the optimizer's share (and float32 parameters once more, which the host updates) is host memory.
#ifndef TESSERA_DIST_STORE_PARAMETER_STORE_H_
#define TESSERA_DIST_STORE_PARAMETER_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/checkpoint/pieces.h"
#include "dist/pipeline/stage.h"
#include "dist/store/gathered_units.h"
#include "dist/store/parameter_shard.h"
#include "dist/store/store_setup.h"
#include "dist/store/zero_options.h"
#include "nn/module.h"
#include "optim/clip.h"
#include "optim/optimizer.h"

namespace tessera::dist {

struct StoreContents;  // dist/store/store_policy.h

class ParameterStore {
 public:
  // `groups` hold those of the model's parameters that train, with tied leaves. The others stop
  // requiring gradients, and cost neither gradients nor states nor place in buckets that travel;
  // where parameters are cut, they are so too, and are gathered with their units. The model
  // outlives the store.
  // Throws Error for options that do not validate, for a parameter that is not the model's, and for
  // `deterministic` with a number of ranks that is no power of two. Collective.
  ParameterStore(nn::Module& model, std::vector<optim::ParameterGroup> groups,
                 const OptimizerFactory& make_optimizer, const StoreGroups& ranks,
                 const ZeroOptions& options, const NeedsWhole& needs_whole = nullptr);
  // The chunks of a pipeline's stage, which take turns (BeginMicroBatch). Weights that other stages
  // hold too get one gradient there; find_unused_parameters is then implied. One chunk where
  // parameters are cut.
  ParameterStore(const Stage& stage, std::vector<optim::ParameterGroup> groups,
                 const OptimizerFactory& make_optimizer, const StoreGroups& ranks,
                 const ZeroOptions& options, const NeedsWhole& needs_whole = nullptr);
  // Parameters stay as they are: whole, or cut. Not collective.
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // Once all parameters have their first values, before a checkpoint is loaded and before the first
  // step: those of rank 0 become every rank's (cut ones are every rank's own). Collective.
  void Start();

  // Of this step, on each rank. Whoever knows already what `Step` will be given says so: off-loaded
  // buckets are then updated with it, and with the learning rate of now, as soon as their gradients
  // have come, on a thread of their own while the backward pass continues. Clip only measures then.
  void BeginStep(int64_t micro_batches, const std::optional<optim::StepInputs>& inputs = {});
  // Before gradients of micro-batch m = 0, 1, ... come to `chunk`: of a pipeline, which of this
  // rank's; else 0.
  void BeginMicroBatch(int64_t m, int chunk = 0);
  // Waits for the sums, those of partial gradients (nn::Parameter::gradient_group) and of weights
  // on several stages among them.
  void FinishGradients();
  // The norm over all parameters of the model, whoever holds them. Collective over all groups.
  optim::ClipResult Clip(const optim::ClipOptions& options);
  // Updates the parameters, on every rank that holds them. Gradients are gone afterwards.
  void Step(const optim::StepInputs& inputs = {});
  // Drops what has come of a step that was begun; the next one begins as if it had not been. Where
  // buckets were updated early (BeginStep), those stay updated. Every rank makes the same call.
  void AbandonStep();

  // Learning rate, step count and states, as far as this rank has them. Its Step is the store's.
  optim::Optimizer& optimizer();

  // The elements of the given parameters (all, if none are named) are there while the scope lives;
  // those that are whole anyway cost nothing. Writing: the same on every rank; a scope for it is
  // needed where parameters are cut. Collective.
  [[nodiscard]] GatheredScope Gather(const std::vector<nn::Parameter*>& parameters = {},
                                     GatherFor use = GatherFor::kReading);
  // Whether ranks gather parameters, or exchange tokens, in forward passes, so that all must run as
  // many.
  bool forward_is_collective() const;
  // Why a step cannot be captured once and replayed: its memory is not the same every time. nullptr
  // when it can.
  const char* WhyNotCaptured(int64_t micro_batches) const;

  // Weights ("model.<name>") and states ("optimizer.<name>.<state>"), as far as this rank holds
  // them: what dist::SaveCheckpoint and Checkpoint::Load take, whatever the policy and the number
  // of ranks of the other side ("sharded state dict").
  std::vector<CheckpointTensor> CheckpointTensors();
  // After those were written. Without states among them (`with_states` false) the float32 weights
  // behind half-precision ones follow the weights. Collective.
  void Loaded(bool with_states = true);
  // This rank's parts of all parameters by name, tied ones once, in CPU memory ("full state dict");
  // empty on data-parallel ranks other than 0 with `rank0_only`. Collective.
  std::map<std::string, Tensor> FullStateDict(bool rank0_only = true);

  // The parameters of each bucket of gradients, in order.
  std::vector<std::vector<std::string>> BucketNames() const;
  // Where parameters are cut: the modules or parameters of each unit, and how often units were
  // gathered for passes.
  std::vector<std::string> UnitNames() const;
  GatherCounts gather_counts() const;

 private:
  ParameterStore(StoreContents contents, const OptimizerFactory& make_optimizer,
                 const ZeroOptions& options);
  void FindSlots();
  void MakeNorm();

  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_PARAMETER_STORE_H_
