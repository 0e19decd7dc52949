// What Adam and SGD share: states allocated at construction, and one pass over all tensors.
//
// Derived classes name their states and launch their kernel; optim/adam.h is the model to follow.
// Bytes per parameter, with its gradient: float32 with two states 4 + 4 + 8 = 16; bfloat16 or
// float16 with float32 gradients 2 + 4 + 4 (master) + 8 = 18, with half-precision ones 16.
#ifndef TESSERA_OPTIM_MULTI_TENSOR_OPTIMIZER_H_
#define TESSERA_OPTIM_MULTI_TENSOR_OPTIMIZER_H_

#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "optim/update_kernel.h"

namespace tessera::optim {

class MultiTensorOptimizer : public Optimizer {
 public:
  const std::vector<ParameterGroup>& groups() const override { return groups_; }
  Tensor learning_rate() const override { return learning_rate_; }
  Tensor step() const override { return step_; }
  void VisitState(const StateVisitor& visit) const override;
  void RefreshMasterWeights() override;

 protected:
  // Up to two states per parameter, zero at first, in AccumulateDType(parameter). Throws Error for
  // a parameter that is no leaf, a name or leaf given twice, a tied leaf of other storage or shape,
  // several devices, and a negative or infinite learning rate, lr_scale or weight decay.
  MultiTensorOptimizer(std::vector<ParameterGroup> groups, double lr,
                       std::vector<std::string> state_names);

  // Launches the kernel.
  virtual void Update(const Device& device, const std::vector<UpdateTensor>& tensors,
                      const UpdateScalars& scalars) = 0;

 private:
  struct State {
    Tensor master;               // half precision only
    std::vector<Tensor> states;  // one per name
  };
  void DoStep(const StepInputs& inputs) override;
  UpdateScalars ScalarsOf(const StepInputs& inputs) const;

  std::vector<ParameterGroup> groups_;
  std::vector<std::string> state_names_;
  std::vector<State> states_;  // of every parameter, group by group
  Device device_;
  Tensor learning_rate_;
  Tensor step_;
};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_MULTI_TENSOR_OPTIMIZER_H_
