// SPDX-License-Identifier: Apache-2.0
#include "optim/tensor_step.h"

#include "ops/elementwise/elementwise.h"
#include "optim/clip.h"

namespace tessera::optim {

TensorStep::TensorStep(const StepInputs& inputs, const Tensor& learning_rate, const Tensor& step)
    : learning_rate_(learning_rate), number_(CastCopy(step, DType::kFloat64)) {
  if (inputs.clip_factor.defined()) grad_scale_ = CastCopy(inputs.clip_factor, DType::kFloat64);
  if (inputs.loss_scale.defined()) {
    const Tensor clip =
        grad_scale_.defined() ? grad_scale_ : Full({}, 1.0, DType::kFloat64, step.device());
    grad_scale_ = Div(clip, CastCopy(inputs.loss_scale, DType::kFloat64));
  }
  if (inputs.found_inf.defined()) {
    skipped_ = Compare(inputs.found_inf, 0.0, Comparison::kNotEqual);
  }
}

Tensor TensorStep::Gradient(const PendingUpdate& update) const {
  const Tensor grad = CastCopy(update.grad, AccumulateDType(update.weights.dtype()));
  return grad_scale_.defined() ? Scaled(grad, grad_scale_) : grad;
}

const Tensor& TensorStep::Weights(const PendingUpdate& update) {
  return update.of->master.defined() ? update.of->master : update.weights;
}

Tensor TensorStep::Rate(const PendingUpdate& update) const {
  return Mul(learning_rate_, update.of->lr_scale);
}

void TensorStep::Assign(const Tensor& state, const Tensor& value) const {
  CopyInto(state, skipped_.defined() ? Where(skipped_, state.Detach(), value) : value);
}

void TensorStep::AssignWeights(const PendingUpdate& update, const Tensor& value) const {
  Assign(Weights(update), value);
  if (update.of->master.defined()) CopyInto(update.weights.Detach(), update.of->master);
}

Tensor Scaled(const Tensor& x, const Tensor& factor) { return Mul(x, CastCopy(factor, x.dtype())); }

Tensor SquareSum(const Tensor& x, const Parameter* whole) {
  const Tensor words = SquareWords({x}, x.device());
  if (whole != nullptr) SumOverParts(*whole, words);
  return RoundedSum(words);
}

Tensor AtLeast(const Tensor& x, double least) {
  return Maximum(x, Full({}, least, DType::kFloat64, x.device()));
}

void SumOverParts(const Parameter& parameter, const Tensor& t) {
  if (parameter.group != nullptr) parameter.group->AllReduce(t, ReduceOp::kSum)->Wait();
}

}  // namespace tessera::optim
