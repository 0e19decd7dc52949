// ZeRO: optimizer states, gradients and parameters shared out over the data-parallel ranks
// (Rajbhandari et al. 2020; Zhao et al. 2023, "PyTorch FSDP"). The stages, and the names of others
// for them, stand in dist/zero/zero_options.h.
//
//   ZeroInitContext sharded(mesh.dp(), {});                  // stage 3 only: no rank ever holds
//   build.on_parameter = sharded.on_parameter();             // the whole model
//   auto model = models::BuildModel(config, build);
//   ZeroEngine zero({model.get()}, optim::SplitByDecay(OptimizedParameters(*model), {...}),
//                   [](std::vector<optim::ParameterGroup> groups) {
//                     return std::make_unique<optim::AdamW>(std::move(groups), options);
//                   },
//                   mesh.dp(), {.stage = 3});
//   zero.Start();
//   for (each step) {
//     zero.BeginStep(micro_batches);
//     for (int64_t m = 0; m < micro_batches; ++m) {
//       zero.BeginMicroBatch(m);
//       Backward(Loss(m));
//     }
//     zero.Finish();                                         // gradients of this rank's shards
//     optim::ClipResult clip = zero.Clip({.max_norm = 1.0});
//     zero.optimizer().set_learning_rate(schedule.At(zero.optimizer().step_count() + 1));
//     zero.Step({.clip_factor = clip.factor});               // updates; whole where they must be
//   }
//
// Every rank of the group makes the same calls in the same order.
//
// Shards. Parameters lie one after the other in flat buckets, which are cut into as many equal
// ranges as there are ranks, wherever that falls. The factory is asked for one optimizer per bucket
// over this rank's pieces of its parameters: 1-d leaves with the parameters' names, groups, weight
// decay and lr_scale. So it must be elementwise, as all of optim/ is. Gradients of a bucket are
// reduce-scattered when they are complete. Gradients of tied leaves are summed apart and joined on
// the shards, in the order of optim::JoinTiedGradients.
//
// Bits. With `deterministic` losses, norms and weights are those of one process, for any stage and
// number of ranks: sums over ranks are a balanced tree, and a chunk of a norm that two ranks share
// is summed by the rank that holds its beginning. With one rank they are so without it too.
//
// Stage 3. A unit (a block) is gathered before its forward and backward passes, the next one while
// it computes, and released afterwards. A parameter that is used outside of its module's Forward is
// gathered when its elements are asked for, and one that is written to while it is gathered
// (LoadStateDict) is cut again when it is released. So evaluation, generation and loading need no
// other code, but are then collective: all ranks run as many forward passes.
//
// Memory in bytes per parameter with Adam over N ranks: float32 16, 8 + 8/N, 4 + 12/N, 16/N for
// stages 0 to 3; half precision with float32 gradients 18, 6 + 12/N, 2 + 16/N, 18/N; with gradients
// in half 16, 4 + 12/N, 2 + 14/N, 16/N; besides buckets under way and gathered units. Off-loaded,
// the optimizer's share (and float32 parameters once more, which the host updates) is host memory.
#ifndef TESSERA_DIST_ZERO_ZERO_ENGINE_H_
#define TESSERA_DIST_ZERO_ZERO_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/communicator.h"
#include "dist/checkpoint/pieces.h"
#include "dist/zero/zero_options.h"
#include "nn/module.h"
#include "optim/clip.h"
#include "optim/optimizer.h"

namespace tessera::dist {

using OptimizerFactory =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParameterGroup>)>;

// Weights that ranks of another group hold as well (tied ones on several stages of a pipeline), and
// how their gradients become one there: `join` is called in Finish, once the gradients of all uses
// have been summed over this engine's group, and has dist::Stage::JoinTiedGradients's arguments.
// All holders cut a weight alike, so shares are joined.
struct SharedGradients {
  // A use's share of the sum; undefined when it has no gradient.
  using Get = std::function<Tensor(const nn::Parameter& use)>;
  using Set = std::function<void(const nn::Parameter& weight, const Tensor& sum)>;
  std::vector<std::string> names = {};
  std::function<void(const Get& get, const Set& set)> join = nullptr;
};

class ZeroEngine {
 public:
  // `models` are this rank's modules: one, or the chunks of a pipeline's stage; they outlive the
  // engine. `groups` hold those of their parameters that train, with tied leaves. Frozen parameters
  // are sharded at stage 3 and left alone before. With `shared` weights some leaves have no
  // gradient on some ranks: find_unused_parameters is implied. Throws Error for options that do not
  // validate, for a parameter that lives elsewhere, for more than one model at stage 3, and for
  // `deterministic` with a number of ranks that is no power of two. Collective.
  ZeroEngine(std::vector<nn::Module*> models, std::vector<optim::ParameterGroup> groups,
             OptimizerFactory make_optimizer, std::shared_ptr<Communicator> group,
             const ZeroOptions& options, const SharedGradients& shared = {});
  // At stage 3 the parameters stay shards, gathered when their elements are asked for. Not
  // collective.
  ~ZeroEngine();
  ZeroEngine(const ZeroEngine&) = delete;
  ZeroEngine& operator=(const ZeroEngine&) = delete;

  // Parameters become those of rank 0 (at stages 0 to 2; shards are every rank's own).
  void Start();

  // Of this step, on each rank. With `early`, the optimizer's step of an off-loaded bucket is taken
  // as soon as its gradients have come, on a thread of its own while the backward pass goes on,
  // with these inputs and the learning rate of now; Clip then only measures, and Step is to be
  // given the same inputs.
  void BeginStep(int64_t micro_batches, std::optional<optim::StepInputs> early = std::nullopt);
  // Before gradients of micro-batch m = 0, 1, ... come to a model.
  void BeginMicroBatch(int64_t m, int model = 0);
  // Waits for the sums. Sums partial gradients (nn::Parameter::gradient_group) as well.
  void Finish();
  // The norm over all parameters of this rank's models: optim::ClipGradNorm's with the bits of one
  // process, parameters in the models' order. `reduce` sums over ranks that hold other models or
  // other parts of them, `counted` is asked with the parameters of `groups`; the data-parallel
  // group is this engine's own business.
  optim::ClipResult Clip(const optim::ClipOptions& options);
  // Updates the shards and sends them to the ranks that hold whole parameters. Gradients are gone
  // afterwards.
  void Step(const optim::StepInputs& inputs = {});

  // Learning rate, step count and states of this rank's shards. Its Step is the engine's.
  optim::Optimizer& optimizer();

  // Weights ("model.<name>") and states ("optimizer.<name>.<state>"), as far as this rank holds
  // them: what dist::SaveCheckpoint and Checkpoint::Load take, whatever the stage and the number of
  // ranks of the other side ("sharded state dict").
  std::vector<CheckpointTensor> CheckpointTensors();
  // After those were written. Without states among them (`with_states` false) the float32 weights
  // behind half-precision ones follow the weights.
  void Loaded(bool with_states = true);

  // This rank's whole part of a parameter (a tensor-parallel part stays one), with memory of its
  // own at stage 3. Collective: all ranks ask for the same parameters in the same order.
  Tensor Whole(nn::Parameter& parameter);
  // All of them by name, tied ones once, in CPU memory ("full state dict"); empty on ranks other
  // than 0 with `rank0_only`. Collective.
  std::map<std::string, Tensor> FullStateDict(bool rank0_only = true);
  // Stage 3: gives back what is gathered, cutting again what was written to. Finish does so too.
  void ReleaseGathered();

  int64_t num_buckets() const;
  // Stage 3: the modules or parameters of each unit, and how often parameters were gathered.
  std::vector<std::string> UnitNames() const;
  struct GatherCounts {
    int64_t gathers = 0;     // of units
    int64_t prefetched = 0;  // of those, begun before they were needed
    int64_t on_demand = 0;   // of those, because an element was asked for outside of a module
  };
  GatherCounts gather_counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_ZERO_ZERO_ENGINE_H_
