// SPDX-License-Identifier: Apache-2.0
// What a store's policy does with parameters, gradients and states. One replicates them
// (replicated_parameters.h), one cuts them over the data-parallel ranks (sharded_parameters.h).
#ifndef TESSERA_DIST_STORE_STORE_POLICY_H_
#define TESSERA_DIST_STORE_STORE_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/checkpoint/pieces.h"
#include "dist/pipeline/stage.h"
#include "dist/store/flat_bucket.h"
#include "dist/store/store_setup.h"
#include "dist/store/zero_options.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace tessera::dist {

// What a policy works on.
struct StoreContents {
  // This rank's modules, by chunk of a pipeline (one chunk where there is none).
  std::vector<std::vector<nn::Module*>> chunks = {};
  const Stage* stage = nullptr;  // of a pipeline
  StoreGroups ranks = {};
  std::vector<optim::ParameterGroup> groups = {};
  NeedsWhole needs_whole = nullptr;
  std::vector<FlatSlot> slots = {};               // of all parameters, in the models' order
  std::vector<optim::Parameter> parameters = {};  // of those that train, likewise

  std::vector<nn::Parameter*> AllParameters() const;
  // Where the parameters lie, whether they train or not (the CPU for none).
  Device device() const;
};

// What a ParameterStore does with parameters, gradients and states: replicate or cut them.
class StorePolicy {
 public:
  virtual ~StorePolicy() = default;

  virtual optim::Optimizer& optimizer() = 0;

  // As ParameterStore's.
  virtual void BeginStep(int64_t micro_batches, const std::optional<optim::StepInputs>& inputs) = 0;
  virtual void BeginMicroBatch(int64_t m, int model) = 0;
  virtual void FinishGradients() = 0;
  virtual void Step(const optim::StepInputs& inputs) = 0;
  virtual void AbandonStep() = 0;
  virtual void AppendTensors(std::vector<CheckpointTensor>* entries) = 0;
  virtual void Loaded(bool with_states) = 0;

  // Whether each data-parallel rank has the gradients of elements of its own; else all have all.
  virtual bool cuts_gradients() const = 0;
  // This rank's pieces of all of them, undefined where there is none. After FinishGradients.
  virtual std::vector<Tensor> Gradients() = 0;
  // The parameters of each bucket of gradients.
  virtual std::vector<std::vector<std::string>> BucketNames() const = 0;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_STORE_POLICY_H_
