// SPDX-License-Identifier: Apache-2.0
// The interface of optimizers.
//
//   AdamW optimizer(SplitByDecay(parameters, {.weight_decay = 0.1}), {.lr = 3e-4});
//   Backward(loss);
//   ClipResult clip = ClipGradNorm(optimizer.parameters(), {.max_norm = 1.0});
//   optimizer.set_learning_rate(schedule.At(optimizer.step_count() + 1));
//   optimizer.Step({.clip_factor = clip.factor});
//   optimizer.ZeroGrad();
//
// Learning rate, step count, loss scale, clip factor and found-inf flag are 0-d tensors on the
// parameters' device: a step reads nothing back to the host and can be captured as a CUDA graph.
// Implementations: a folder each (optim/adam, optim/sgd, ...), which optim/optimizer_kind.h knows
// by name.
#ifndef TESSERA_OPTIM_OPTIMIZER_H_
#define TESSERA_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "optim/parameter.h"

namespace tessera::optim {

// Factors of one step: 0-d float32 tensors on the parameters' device, each of which may be left
// out. The gradients are taken as grad * clip_factor / loss_scale.
struct StepInputs {
  Tensor clip_factor = {};  // from ClipGradNorm (optim/clip.h)
  Tensor loss_scale = {};   // what the loss was multiplied by (optim/grad_scaler.h)
  Tensor found_inf = {};    // not zero: the step changes nothing, the step count included
};

// Called with each state. `parameter` is the parameter's name, or "" for what belongs to the whole
// optimizer; `state` is one of
//   "exp_avg", "momentum", ...  those that the optimizer's kind declares (optim/optimizer_kind.h)
//   "master"                    the float32 weights behind a half-precision parameter
//   "step"                      (parameter "") the number of steps taken: 0-d int64
// The tensor is the state itself: writing into it (CopyInto) restores it. `placement` says which
// part of the global state it is: a whole one is the same on every rank of the parameter's group.
using StateVisitor = std::function<void(const std::string& parameter, const std::string& state,
                                        const Tensor& t, const Placement& placement)>;

// What updates parameters by their gradients.
class Optimizer {
 public:
  Optimizer() = default;
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Joins tied gradients and updates every parameter that has a gradient, in place and off the
  // tape (the storages' versions are bumped). Gradients stay as they are.
  void Step(const StepInputs& inputs = {}) { DoStep(inputs); }

  // Of all parameters, tied leaves included.
  void ZeroGrad(ZeroGradMode mode = ZeroGradMode::kRelease);

  virtual const std::vector<ParameterGroup>& groups() const = 0;
  std::vector<Parameter> parameters() const { return AllParameters(groups()); }

  // 0-d float64: float32 would round 3e-4, and float64 parameters would show it. Not a state: the
  // run's configuration and schedule give it.
  virtual Tensor learning_rate() const = 0;
  void set_learning_rate(double lr) { Fill(learning_rate(), lr); }

  // 0-d int64: steps taken so far, those skipped for infinite gradients not counted.
  virtual Tensor step() const = 0;
  // The same as a number (waits for the device; 0 on meta).
  int64_t step_count() const;

  // Every state in a fixed order, in which parameters follow their groups. States exist from
  // construction on, so that a checkpoint can be loaded before the first step and memory is known.
  virtual void VisitState(const StateVisitor& visit) const = 0;

  // Sets the float32 weights behind half-precision parameters to the parameters' values: to be
  // called when parameters were written from outside and no "master" was loaded.
  virtual void RefreshMasterWeights() = 0;

  // The states by name: "<parameter>.<state>", and "step". The tensors are the states themselves.
  std::map<std::string, Tensor> StateDict() const;
  // Copies the given tensors into the states. Refuses, before anything is written, a name that is
  // missing or unknown, and a tensor of another shape or dtype.
  Status LoadStateDict(const std::map<std::string, Tensor>& state);

 protected:
  virtual void DoStep(const StepInputs& inputs) = 0;
};

// "<parameter>.<state>", or `state` alone where parameter is "".
std::string StateName(const std::string& parameter, const std::string& state);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_OPTIMIZER_H_
