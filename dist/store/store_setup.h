// SPDX-License-Identifier: Apache-2.0
// What a parameter store is given beside a model and a policy.
#ifndef TESSERA_DIST_STORE_STORE_SETUP_H_
#define TESSERA_DIST_STORE_STORE_SETUP_H_

#include <functional>
#include <memory>
#include <vector>

#include "core/communicator.h"
#include "dist/mesh/mesh.h"
#include "nn/module.h"
#include "optim/optimizer.h"

namespace tessera::dist {

// The ranks that a store works over. (A pipeline's group is its stage's: dist/pipeline/stage.h.)
struct StoreGroups {
  // Ranks that hold the same parameters and see other rows: they share out what the policy says.
  std::shared_ptr<Communicator> data = SingleProcessCommunicator();
  // Ranks that hold other parts of each parameter.
  std::shared_ptr<Communicator> tensor = SingleProcessCommunicator();
  // Of `data`, those that share out the experts, and those that hold the same ones (dist/mesh).
  std::shared_ptr<Communicator> experts = SingleProcessCommunicator();
  std::shared_ptr<Communicator> expert_data = nullptr;  // where there are several experts' ranks

  // The ranks that hold the same parts of a parameter.
  const std::shared_ptr<Communicator>& HoldersOf(const nn::Parameter& p) const {
    return p.expert_group == nullptr ? data : expert_data;
  }
};

// Those of a mesh.
StoreGroups StoreGroupsOf(const Mesh& mesh);

// Makes an optimizer over some parameters, in groups. A store that cuts parameters asks for one per
// bucket, over 1-d pieces that keep the parameters' names.
using OptimizerFactory =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParameterGroup>)>;

// Whether the update of an element depends on the rest of its parameter (factored moments, norms,
// whole matrices). One rank then updates all of this rank's part, as a leaf of the parameter's
// shape; all others are cut anywhere. nullptr: none does, the optimizer is elementwise.
using NeedsWhole = std::function<bool(const optim::Parameter&)>;

// The inputs of a step as an optimizer on `device` takes them; without those that have no elements
// to be brought there. (An optimizer of no parameters lies on the CPU, wherever the others are.)
optim::StepInputs InputsAt(const optim::StepInputs& inputs, const Device& device);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_STORE_SETUP_H_
