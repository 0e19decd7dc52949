// SPDX-License-Identifier: Apache-2.0
#include "optim/adafactor/adafactor.h"

#include <utility>

#include "base/options.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduction/reduction.h"
#include "ops/view/view.h"
#include "optim/optimizer_kind.h"

namespace tessera::optim {
namespace {

bool IsFactored(const Parameter& p) { return p.tensor.ndim() >= 2; }

double GlobalNumel(const Parameter& p) {
  return static_cast<double>(p.placement.global_shape().numel());
}

// 0-d float64: the root mean square over the whole parameter of what is this rank's part of it.
Tensor RootMeanSquare(const Parameter& p, const Tensor& part) {
  return Sqrt(Mul(SquareSum(part, &p), 1.0 / GlobalNumel(p)));
}

// The box of a tensor that lacks dim `dim` of the box's.
Box WithoutDim(const Box& box, int dim) {
  Box rest;
  for (int d = 0; d < box.begin.ndim(); ++d) {
    if (d == dim) continue;
    rest.begin.push_back(box.begin[d]);
    rest.size.push_back(box.size[d]);
  }
  return rest;
}

// Sums of x, this rank's part, over a dim of the global parameter, by way of its boxes.
Tensor GlobalSum(const Parameter& p, const Tensor& x, StateShape shape, int dim) {
  const Tensor sums = Zeros(StatePlacement(shape, p).global_shape(), x.dtype(), p.tensor.device());
  for (const BoxMapping& box : p.placement.boxes()) {
    AddInto(BoxView(sums, WithoutDim(box.global, dim)),
            Sum(BoxView(x, {box.local_begin, box.global.size}), {dim}));
  }
  SumOverParts(p, sums);
  return sums;
}

// x times factors of the rows and columns of the global parameter.
Tensor TimesFactors(const Parameter& p, const Tensor& x, const Tensor& rows, const Tensor& cols) {
  const int row_dim = x.ndim() - 2;
  const auto product = [&](const Tensor& part, const Box& box) {
    const Tensor r = BoxView(rows, WithoutDim(box, row_dim + 1));
    const Tensor c = BoxView(cols, WithoutDim(box, row_dim));
    return Mul(Mul(part, Unsqueeze(r, row_dim + 1)), Unsqueeze(c, row_dim));
  };
  const Placement& placement = p.placement;
  if (placement.is_whole()) return product(x, placement.boxes()[0].global);
  const Tensor result = ZerosLike(x);
  for (const BoxMapping& box : placement.boxes()) {
    const Box local{box.local_begin, box.global.size};
    CopyInto(BoxView(result, local), product(BoxView(x, local), box.global));
  }
  return result;
}

}  // namespace

const OptionTable& AdafactorOptions::Table() {
  static const auto* table = new OptionTable(
      OptionTable::Of<AdafactorOptions>("Adafactor")
          .Add("beta2_decay", &AdafactorOptions::beta2_decay,
               "the second moment's decay rate in step t is 1 - t^beta2_decay", {.most = 0})
          .Add("eps", &AdafactorOptions::eps, "added to squared gradients", {.least = 0})
          .Add("eps2", &AdafactorOptions::eps2,
               "the least root mean square of a parameter that counts", {.least = 0})
          .Add("clip_threshold", &AdafactorOptions::clip_threshold,
               "the largest root mean square of an update, before the learning rate", {.above = 0})
          .Add("scale_parameter", &AdafactorOptions::scale_parameter,
               "the learning rate is times the root mean square of the parameter")
          .Add("beta1", &AdafactorOptions::beta1, "decay rate of a momentum of updates",
               {.least = 0, .below = 1, .unset = "no momentum"}));
  return *table;
}

std::vector<StateKind> Adafactor::States(const Parameter& p, const Options& options) {
  std::vector<StateKind> states;
  if (IsFactored(p)) {
    states = {{"exp_avg_sq_row", StateShape::kPerRow}, {"exp_avg_sq_col", StateShape::kPerColumn}};
  } else {
    states = {{"exp_avg_sq"}};
  }
  if (options.beta1) states.push_back({"exp_avg"});
  return states;
}

Adafactor::Adafactor(std::vector<ParameterGroup> groups, const AdafactorOptions& options)
    : MultiTensorOptimizer(std::move(groups), options.lr,
                           [&](const Parameter& p) { return States(p, options); }),
      options_(options) {
  CheckOptions("adafactor", options);
}

void Adafactor::Update(const std::vector<PendingUpdate>& updates, const StepInputs& inputs) {
  const TensorStep step(inputs, learning_rate(), this->step());
  for (const PendingUpdate& update : updates) UpdateOne(update, step);
}

// The gradient over the root of its second moment.
Tensor Adafactor::Normalised(const PendingUpdate& update, const TensorStep& step) const {
  const Parameter& p = update.of->parameter;
  const std::vector<Tensor>& states = update.of->states;
  const Tensor g = step.Gradient(update);
  const Tensor squares = Square(g);
  const Tensor share = Exp(Mul(Log(step.number()), options_.beta2_decay));  // 1 - b
  const auto moved = [&](const Tensor& state, const Tensor& mean) {
    return Add(state.Detach(), Scaled(Sub(Add(mean, options_.eps), state), share));
  };
  if (!IsFactored(p)) {
    const Tensor v = moved(states[0], squares);
    step.Assign(states[0], v);
    return Mul(g, Rsqrt(v));
  }
  const Shape& global = p.placement.global_shape();
  const int columns = global.ndim() - 1;
  const auto mean_over = [&](int dim, StateShape shape) {
    return Mul(GlobalSum(p, squares, shape, dim), 1.0 / static_cast<double>(global[dim]));
  };
  const Tensor r = moved(states[0], mean_over(columns, StateShape::kPerRow));
  const Tensor c = moved(states[1], mean_over(columns - 1, StateShape::kPerColumn));
  step.Assign(states[0], r);
  step.Assign(states[1], c);
  return TimesFactors(p, g, Rsqrt(Div(r, Mean(r, {-1}, /*keep_dims=*/true))), Rsqrt(c));
}

// What the learning rate is times, 0-d; undefined: 1.
Tensor Adafactor::SizeOf(const PendingUpdate& update) const {
  if (!options_.scale_parameter) return Tensor();
  return AtLeast(RootMeanSquare(update.of->parameter, TensorStep::Weights(update)), options_.eps2);
}

void Adafactor::UpdateOne(const PendingUpdate& update, const TensorStep& step) const {
  const Parameter& p = update.of->parameter;
  if (p.placement.global_shape().numel() == 0) return;
  const Tensor weights = TensorStep::Weights(update).Detach();
  const Tensor rate = step.Rate(update);
  const Tensor size = SizeOf(update);
  Tensor u = Normalised(update, step);
  const Tensor excess = AtLeast(Mul(RootMeanSquare(p, u), 1.0 / options_.clip_threshold), 1.0);
  u = Scaled(u, Div(size.defined() ? Mul(rate, size) : rate, excess));
  if (options_.beta1) {
    const Tensor& m = update.of->states.back();
    u = Add(Mul(m.Detach(), *options_.beta1), Mul(u, 1.0 - *options_.beta1));
    step.Assign(m, u);
  }
  const Tensor decayed = update.of->weight_decay == 0
                             ? weights
                             : Scaled(weights, Affine(rate, -update.of->weight_decay, 1.0));
  step.AssignWeights(update, Sub(decayed, u));
}

TESSERA_REGISTER_OPTIMIZER(Adafactor, "adafactor",
                           "Adafactor: factored second moments (Shazeer and Stern 2018)");

}  // namespace tessera::optim
