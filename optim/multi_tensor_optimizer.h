// SPDX-License-Identifier: Apache-2.0
// What the optimizers of this floor share: groups, states as their kinds declare them, master
// weights, and one pass over all parameters that have a gradient.
//
// A derived class declares its states and updates what it is given: by kernels that take all
// tensors at once (optim/update_kernel.h; optim/lion is the model to follow), or by operations, one
// parameter after the other (optim/tensor_step.h; optim/adafactor).
// Bytes per parameter, with its gradient: float32 with two elementwise states 4 + 4 + 8 = 16;
// bfloat16 or float16 with float32 gradients 2 + 4 + 4 (master) + 8 = 18, with half-precision ones
// 16.
#ifndef TESSERA_OPTIM_MULTI_TENSOR_OPTIMIZER_H_
#define TESSERA_OPTIM_MULTI_TENSOR_OPTIMIZER_H_

#include <functional>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "optim/update_kernel.h"
#include "optim/update_rule.h"

namespace tessera::optim {

// A parameter and all that its update takes besides the gradient.
struct OptimizedParameter {
  Parameter parameter;  // its placement is filled in
  double lr_scale = 1;  // of its group
  double weight_decay = 0;
  std::vector<StateKind> kinds;
  std::vector<Tensor> states;  // one per kind
  Tensor master;               // half precision only
};

// One that has a gradient in this step.
struct PendingUpdate {
  const OptimizedParameter* of;
  Tensor grad;     // contiguous; float64 for float64 parameters only
  Tensor weights;  // contiguous: the parameter itself, or a copy that is written back
};

// What optimizers derive from that update all tensors in one pass.
class MultiTensorOptimizer : public Optimizer {
 public:
  const std::vector<ParameterGroup>& groups() const override { return groups_; }
  Tensor learning_rate() const override { return learning_rate_; }
  Tensor step() const override { return step_; }
  void VisitState(const StateVisitor& visit) const override;
  void RefreshMasterWeights() override;

 protected:
  using StateDeclaration = std::function<std::vector<StateKind>(const Parameter&)>;
  // Throws Error for a parameter that is no leaf, a name or leaf given twice, a tied leaf of other
  // storage or shape, a placement of another shape, several devices, and a negative or infinite
  // learning rate, lr_scale or weight decay.
  MultiTensorOptimizer(std::vector<ParameterGroup> groups, double lr,
                       const StateDeclaration& states);

  // Throws Error for a value out of the range that its declaration states.
  template <typename Options>
  static void CheckOptions(const char* optimizer, const Options& options) {
    const Status valid = Options::Table().Check(&options);
    TESSERA_CHECK(valid.ok(), optimizer, Message(valid));
  }

  // Updates weights (and masters) and states; the step count is already that of this step.
  virtual void Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) = 0;

  const Device& device() const { return device_; }
  // What kernels are given. The arrays of a parameter are its first two states.
  UpdateScalars ScalarsOf(const StepInputs& inputs) const;
  static std::vector<UpdateTensor> KernelTensors(const std::vector<PendingUpdate>& updates);

 private:
  void DoStep(const StepInputs& inputs) override;

  std::vector<ParameterGroup> groups_;
  std::vector<OptimizedParameter> parameters_;  // group by group
  Device device_;
  Tensor learning_rate_;
  Tensor step_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_MULTI_TENSOR_OPTIMIZER_H_
