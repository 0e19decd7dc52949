// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: their parameters, directions and layers, against one cell at a time. The cells
// themselves: ops/recurrent/recurrent_test.cc; beside PyTorch's: tests/parity/operations.py.
#include "nn/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/thread_communicator.h"
#include "ops/matmul/matmul.h"
#include "ops/rearrange/rearrange.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera::nn {
namespace {

std::unique_ptr<RecurrentLayers> Make(RecurrentCell cell, const RecurrentConfig& config,
                                      const BuildContext& build) {
  const Scope scope = Scope::Root(build);
  switch (cell) {
    case RecurrentCell::kLstm:
      return std::make_unique<Lstm>(config, scope);
    case RecurrentCell::kGru:
      return std::make_unique<Gru>(config, scope);
    case RecurrentCell::kTanh:
      return std::make_unique<Rnn>(config, scope);
    case RecurrentCell::kRelu:
      return std::make_unique<Rnn>(config, Nonlinearity::kRelu, scope);
  }
  return nullptr;
}

TEST(RecurrentLayersTest, ParametersAreCalledAsPyTorchCallsThem) {
  const auto gru = Make(RecurrentCell::kGru,
                        {.input_size = 3, .hidden_size = 4, .num_layers = 2, .bidirectional = true},
                        {.seed = 1});
  std::vector<std::string> names;
  for (Parameter* p : gru->Parameters()) names.push_back(p->name);
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(names[0], "weight_ih_l0");
  EXPECT_EQ(names[3], "bias_hh_l0");
  EXPECT_EQ(names[4], "weight_ih_l0_reverse");
  EXPECT_EQ(names[13], "weight_hh_l1_reverse");
  EXPECT_EQ(gru->FindParameter("weight_ih_l1")->tensor.shape(), (Shape{12, 8}));
  for (Parameter* p : gru->Parameters()) {
    double most = 0;
    for (const double v : p->tensor.ToVector<double>()) most = std::max(most, std::abs(v));
    EXPECT_LE(most, 0.5) << p->name;
    EXPECT_GT(most, 0.2) << p->name;
  }
}

// Two layers in two directions are four cells.
TEST(RecurrentLayersTest, LayersAndDirections) {
  const auto lstm =
      Make(RecurrentCell::kLstm,
           {.input_size = 3, .hidden_size = 4, .num_layers = 2, .bidirectional = true},
           {.dtype = DType::kFloat64, .seed = 1});
  const Tensor x = RandomTensor({2, 5, 3}, 1);
  const RecurrentStart start{.hidden = RandomTensor({4, 2, 4}, 2),
                             .cell = RandomTensor({4, 2, 4}, 3)};
  const RecurrentResult y = lstm->Forward(x, {}, start);
  const auto run = [&](const Tensor& from, const std::string& name, int64_t index) {
    const auto p = [&](const char* kind) {
      return lstm->FindParameter(std::string(kind) + name)->tensor;
    };
    // Backwards is forwards over the sequence in the other order.
    const bool reverse = index % 2 == 1;
    const Tensor ordered = reverse ? Flip(from, {1}) : from;
    const RecurrentStates s =
        Recurrent(RecurrentCell::kLstm,
                  {.projected = Linear(ordered, p("weight_ih"), p("bias_ih"), LinearLayout::kOutIn),
                   .weight = p("weight_hh"),
                   .bias = p("bias_hh"),
                   .hidden = Select(start.hidden, 0, index),
                   .cell = Select(start.cell, 0, index)});
    return RecurrentStates{reverse ? Flip(s.output, {1}) : s.output, s.hidden, s.cell};
  };
  const RecurrentStates a = run(x, "_l0", 0);
  const RecurrentStates b = run(x, "_l0_reverse", 1);
  const Tensor between = Cat({a.output, b.output}, -1);
  const RecurrentStates c = run(between, "_l1", 2);
  const RecurrentStates d = run(between, "_l1_reverse", 3);
  EXPECT_EQ(y.output.ToVector<double>(), Cat({c.output, d.output}, -1).ToVector<double>());
  EXPECT_EQ(y.hidden.ToVector<double>(),
            Stack({a.hidden, b.hidden, c.hidden, d.hidden}, 0).ToVector<double>());
  EXPECT_EQ(y.cell.ToVector<double>(),
            Stack({a.cell, b.cell, c.cell, d.cell}, 0).ToVector<double>());
}

// A padded sequence gives what it gives alone, without padding.
TEST(RecurrentLayersTest, LengthsTakeThePlaceOfPackedSequences) {
  for (const RecurrentCell cell :
       {RecurrentCell::kTanh, RecurrentCell::kRelu, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    const auto layers =
        Make(cell, {.input_size = 3, .hidden_size = 4, .num_layers = 2, .bidirectional = true},
             {.dtype = DType::kFloat64, .seed = 1});
    const Tensor x = RandomTensor({2, 5, 3}, 1);
    const RecurrentResult both =
        layers->Forward(x, {}, {.lengths = Tensor::FromVector<int64_t>({3, 5}, {2})});
    const RecurrentResult alone = layers->Forward(Slice(Slice(x, 0, 0, 1), 1, 0, 3));
    EXPECT_EQ(Slice(Slice(both.output, 0, 0, 1), 1, 0, 3).ToVector<double>(),
              alone.output.ToVector<double>());
    EXPECT_EQ(Select(both.hidden, 1, 0).ToVector<double>(), alone.hidden.ToVector<double>());
    for (const double v : Slice(Slice(both.output, 0, 0, 1), 1, 3, 2).ToVector<double>()) {
      EXPECT_EQ(v, 0);
    }
  }
}

TEST(RecurrentLayersTest, Gradients) {
  for (const RecurrentCell cell :
       {RecurrentCell::kTanh, RecurrentCell::kLstm, RecurrentCell::kGru}) {
    const RecurrentConfig config{
        .input_size = 3, .hidden_size = 2, .num_layers = 2, .bidirectional = true, .dropout = 0.3};
    Tensors inputs = {RandomTensor({2, 3, 3}, 1)};
    const std::unique_ptr<RecurrentLayers> first =
        Make(cell, config, {.dtype = DType::kFloat64, .seed = 1});
    for (Parameter* p : first->Parameters()) {
      inputs.push_back(p->tensor.Detach());
    }
    CheckOp({.name = "RecurrentLayers",
             .op =
                 [&](const Tensors& in) {
                   const auto layers =
                       Make(cell, config, {.dtype = in[0].dtype(), .device = in[0].device()});
                   const std::vector<Parameter*> parameters = layers->Parameters();
                   for (size_t i = 0; i < parameters.size(); ++i) {
                     parameters[i]->tensor = Contiguous(in[i + 1]);
                   }
                   return layers->Forward(in[0], {.training = true, .step = 1}).tensors();
                 },
             .reference = nullptr,
             .inputs = inputs,
             .sum_length = 12,
             .scale_floor = 2});
  }
}

TEST(RecurrentLayersTest, Refusals) {
  const RecurrentConfig config{.input_size = 3, .hidden_size = 4};
  EXPECT_THROW(Lstm({.input_size = 3}, Scope::Root({})), Error);
  EXPECT_THROW(Lstm({.input_size = 3, .hidden_size = 4, .num_layers = 0}, Scope::Root({})), Error);
  const Lstm lstm(config, Scope::Root({}));
  EXPECT_THROW(lstm.Forward(Zeros({2, 5, 4})), Error);
  EXPECT_THROW(lstm.Forward(Zeros({2, 3})), Error);
  EXPECT_THROW(lstm.Forward(Zeros({2, 5, 3}), {}, {.hidden = Zeros({2, 2, 4})}), Error);
  const Gru gru(config, Scope::Root({}));
  EXPECT_THROW(gru.Forward(Zeros({2, 5, 3}), {}, {.cell = Zeros({1, 2, 4})}), Error);
  RunRanks(2, [&](const Group& group) {
    EXPECT_THROW(Gru(config, Scope::Root({.tensor_parallel = group, .sequence_parallel = true})),
                 Error);
  });
}

}  // namespace
}  // namespace tessera::nn
