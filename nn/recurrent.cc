// SPDX-License-Identifier: Apache-2.0
#include "nn/recurrent.h"

#include <cmath>
#include <string>

#include "nn/weight.h"
#include "ops/matmul/matmul.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

void Check(const RecurrentConfig& config, const Scope& scope) {
  TESSERA_CHECK(config.num_layers >= 1 && config.input_size > 0 && config.hidden_size > 0,
                "recurrent", "'", scope.path, "' of ", config.num_layers, " layers, from ",
                config.input_size, " to ", config.hidden_size, " features");
  const Group& group = scope.build->tensor_parallel;
  TESSERA_CHECK(!scope.build->sequence_parallel || group == nullptr || group->size() == 1,
                "recurrent", "'", scope.path,
                "' needs whole sequences; under sequence parallelism a rank has a share of them");
}

// Of one layer and direction, from [layers * directions, B, H].
Tensor StateOf(const Tensor& states, size_t index) {
  return states.defined() ? Select(states, 0, static_cast<int64_t>(index)) : states;
}

void CheckStart(const Tensor& states, const Shape& shape) {
  TESSERA_CHECK(!states.defined() || states.shape() == shape, "recurrent", "first states ", states,
                ", needed is ", shape);
}

}  // namespace

std::vector<Tensor> RecurrentResult::tensors() const {
  std::vector<Tensor> all = {output, hidden};
  if (cell.defined()) all.push_back(cell);
  return all;
}

RecurrentLayers::RecurrentLayers(RecurrentCell cell, const RecurrentConfig& config,
                                 const Scope& scope)
    : Module(scope), cell_(cell), config_(config) {
  Check(config, scope);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (int direction = 0; direction < directions(); ++direction) {
      weights_.push_back(AddWeights(layer, direction == 1));
    }
    if (layer > 0) dropouts_.Add(config.dropout);
  }
}

RecurrentLayers::Weights RecurrentLayers::AddWeights(int layer, bool reverse) {
  const int64_t hidden = config_.hidden_size;
  const int64_t rows = GatesOf(cell_) * hidden;
  const int64_t inputs = layer == 0 ? config_.input_size : directions() * hidden;
  const Init init = Init::Uniform(1 / std::sqrt(static_cast<double>(hidden)));
  const std::string suffix = "_l" + std::to_string(layer) + (reverse ? "_reverse" : "");
  const auto add = [&](const std::string& name, const Shape& shape) {
    return &AddParameter(name + suffix, Placement::Whole(shape), init);
  };
  Weights weights{add("weight_ih", {rows, inputs}), add("weight_hh", {rows, hidden}), nullptr,
                  nullptr};
  if (config_.bias) {
    weights.input_bias = add("bias_ih", {rows});
    weights.hidden_bias = add("bias_hh", {rows});
  }
  return weights;
}

RecurrentStates RecurrentLayers::RunLayer(const Weights& weights, const Tensor& x,
                                          const RecurrentStart& start, size_t index,
                                          bool reverse) const {
  const auto tensor = [](const Parameter* p) { return p == nullptr ? Tensor() : p->tensor; };
  TESSERA_CHECK(IsDense(*weights.hidden), "recurrent", "'", weights.hidden->name,
                "' must be dense");
  const Tensor projected =
      Multiply(*weights.input, LinearLayout::kOutIn, x, tensor(weights.input_bias));
  return Recurrent(cell_, {.projected = projected,
                           .weight = weights.hidden->tensor,
                           .bias = tensor(weights.hidden_bias),
                           .hidden = StateOf(start.hidden, index),
                           .cell = StateOf(start.cell, index),
                           .lengths = start.lengths,
                           .reverse = reverse});
}

RecurrentResult RecurrentLayers::Forward(const Tensor& x, const ForwardContext& context,
                                         const RecurrentStart& start) const {
  TESSERA_CHECK(x.ndim() == 3 && x.size(2) == config_.input_size, "recurrent", "'", path(),
                "' takes [batch, steps, ", config_.input_size, "], got ", x);
  const Shape states{static_cast<int64_t>(weights_.size()), x.size(0), config_.hidden_size};
  CheckStart(start.hidden, states);
  CheckStart(start.cell, states);
  return Call(x, [&] {
    Tensor y = x;
    std::vector<Tensor> hidden;
    std::vector<Tensor> cells;
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      if (layer > 0) y = dropouts_[static_cast<size_t>(layer) - 1].ForwardWhole(y, context);
      std::vector<Tensor> outputs;
      for (int direction = 0; direction < directions(); ++direction) {
        const size_t index = hidden.size();
        const RecurrentStates one = RunLayer(weights_[index], y, start, index, direction == 1);
        outputs.push_back(one.output);
        hidden.push_back(one.hidden);
        if (one.cell.defined()) cells.push_back(one.cell);
      }
      y = outputs.size() == 1 ? outputs[0] : Cat(outputs, -1);
    }
    return RecurrentResult{y, Stack(hidden, 0), cells.empty() ? Tensor() : Stack(cells, 0)};
  });
}

}  // namespace tessera::nn
