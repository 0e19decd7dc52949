// SPDX-License-Identifier: Apache-2.0
// A step for optimizers that update one parameter after the other by operations on tensors: those
// that look at whole parameters, whose cost is in products and sums.
//
//   const TensorStep step(inputs, learning_rate(), this->step());
//   for (const PendingUpdate& update : updates) {
//     const Tensor g = step.Gradient(update);
//     step.AssignWeights(update, Sub(TensorStep::Weights(update), Scaled(g, step.Rate(update))));
//   }
//
// Scalars stay 0-d tensors on the device, so that nothing is read back; bits do not depend on
// threads.
#ifndef TESSERA_OPTIM_TENSOR_STEP_H_
#define TESSERA_OPTIM_TENSOR_STEP_H_

#include "core/tensor.h"
#include "optim/multi_tensor_optimizer.h"
#include "optim/optimizer.h"

namespace tessera::optim {

class TensorStep {
 public:
  // `step`: the one being taken, from 1.
  TensorStep(const StepInputs& inputs, const Tensor& learning_rate, const Tensor& step);

  // grad * clip_factor / loss_scale in AccumulateDType of the parameter; never the gradient itself.
  Tensor Gradient(const PendingUpdate& update) const;
  // The master weights where there are some.
  static const Tensor& Weights(const PendingUpdate& update);

  // 0-d float64: the learning rate times the group's lr_scale; the step.
  Tensor Rate(const PendingUpdate& update) const;
  const Tensor& number() const { return number_; }

  // state = value, unless the step is skipped for infinite gradients.
  void Assign(const Tensor& state, const Tensor& value) const;
  // Likewise the weights, and the rounding of master weights.
  void AssignWeights(const PendingUpdate& update, const Tensor& value) const;

 private:
  Tensor learning_rate_;
  Tensor number_;
  Tensor grad_scale_;  // 0-d float64; undefined: 1
  Tensor skipped_;     // 0-d bool; undefined: false
};

// x times a 0-d factor of any floating dtype, in x's.
Tensor Scaled(const Tensor& x, const Tensor& factor);
// 0-d float64: the sum of squares of x's elements, as optim/clip.h has it, and of the elements that
// ranks have which hold other parts of `whole` (nullptr: x is all of it).
Tensor SquareSum(const Tensor& x, const Parameter* whole = nullptr);
// 0-d float64: the larger of x and a number.
Tensor AtLeast(const Tensor& x, double least);
// t = the sum of t over the ranks that hold parts of the parameter.
void SumOverParts(const Parameter& parameter, const Tensor& t);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_TENSOR_STEP_H_
