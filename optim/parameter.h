// SPDX-License-Identifier: Apache-2.0
// What an optimizer works on: named leaves, in groups that share their hyperparameters.
//
//   Tensor w = RequireGrad(...);
//   std::vector<Parameter> parameters = {{"lm_head.weight", w, {}}};
//   ParameterGroup group{.parameters = parameters, .weight_decay = 0.1};
//
// The order of a list of parameters is the model's and the same on every rank: sums over parameters
// (gradient norms) are taken in it.
#ifndef TESSERA_OPTIM_PARAMETER_H_
#define TESSERA_OPTIM_PARAMETER_H_

#include <memory>
#include <string>
#include <vector>

#include "core/communicator.h"
#include "core/placement.h"
#include "core/tensor.h"

namespace tessera::optim {

// One thing to be optimised: a leaf (autograd/autograd.h) by its Hugging Face name, and the leaves
// tied to it: they share its storage but collect gradients of their own (GPT-2's `wte` and
// `lm_head`), since a weight's uses are summed apart and joined after the last micro-batch.
struct Parameter {
  std::string name;
  Tensor tensor;
  std::vector<Tensor> tied = {};
  // Gradients of `tensor` and of the tied leaves are added up in a balanced tree, otherwise one
  // after the other.
  bool adds_in_tree = false;
  // Which part of the global parameter `tensor` is; by default all of it. A piece of a flattened
  // parameter (ZeRO) has none: what holds the pieces knows where they lie.
  Placement placement = {};
  // The ranks that hold its parts, which do not overlap; nullptr: this one has all of it. An
  // optimizer that needs whole parameters communicates over it, for the same parameters in the same
  // order on each of its ranks.
  std::shared_ptr<Communicator> group = nullptr;
  // An embedding or a head: its rows stand for tokens, positions or classes, not for features.
  bool table = false;
};

// `placement`, or that of a whole tensor where there is none.
Placement PlacementOf(const Parameter& parameter);

struct ParameterGroup {
  std::vector<Parameter> parameters;
  double weight_decay = 0;
  double lr_scale = 1;  // times the optimizer's learning rate
  std::string name = {};
};

// Adds up the gradients of tied leaves: grad(tensor) = grad(tensor) + grad(tied[0]) + ... in that
// order (or Parameter::adds_in_tree's), in the gradient's dtype, and leaves the tied ones without
// gradient. A second call does nothing, so that clipping and stepping may both call it.
void JoinTiedGradients(const std::vector<Parameter>& parameters);
// Adds up `gradients`, of which some may be undefined, as JoinTiedGradients does; the result is in
// the memory of the first that is defined.
Tensor SumOfUses(std::vector<Tensor> gradients, bool in_tree);

// What becomes of the memory of gradients that are cleared.
enum class ZeroGradMode {
  kRelease,    // no gradient is left; the next backward pass brings new memory
  kFillZeros,  // existing gradient buffers stay (views into communication buckets) and become zero
};

// Clears the gradients of parameters.
void ZeroGrad(const std::vector<Parameter>& parameters, ZeroGradMode mode = ZeroGradMode::kRelease);

// The gradient of a leaf; undefined when there is none or the leaf has been frozen by `DropGrad`.
Tensor GradOrNone(const Tensor& leaf);

// The parameters of all groups, group by group.
std::vector<Parameter> AllParameters(const std::vector<ParameterGroup>& groups);

// The device that all of them live on (the CPU for none). Throws Error when there are several.
Device CommonDevice(const std::vector<Parameter>& parameters);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_PARAMETER_H_
