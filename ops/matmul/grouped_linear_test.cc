// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/grouped_linear.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/execution_context.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

struct Case {
  std::vector<int64_t> counts;
  int64_t in;
  int64_t out;
  LinearLayout layout;
};

int64_t RowsOf(const Case& c) {
  int64_t rows = 0;
  for (const int64_t count : c.counts) rows += count;
  return rows;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const LinearLayout layout : {LinearLayout::kOutIn, LinearLayout::kInOut}) {
    cases.push_back({{3, 0, 5, 1}, 7, 4, layout});
    cases.push_back({{0, 0}, 3, 2, layout});
    cases.push_back({{2}, 1, 9, layout});
  }
  return cases;
}

Tensors InputsOf(const Case& c) {
  Tensors inputs = {RandomTensor({RowsOf(c), c.in}, 1)};
  const bool out_in = c.layout == LinearLayout::kOutIn;
  for (size_t i = 0; i < c.counts.size(); ++i) {
    inputs.push_back(RandomTensor(out_in ? Shape{c.out, c.in} : Shape{c.in, c.out}, 10 + i));
  }
  return inputs;
}

Tensors Weights(const Tensors& inputs) { return {inputs.begin() + 1, inputs.end()}; }

TEST(GroupedLinearTest, EqualsPlainLoops) {
  for (const Case& c : Cases()) {
    CheckOp({.name = "grouped_linear",
             .op =
                 [&](const Tensors& in) {
                   return Tensors{GroupedLinear(in[0], c.counts, Weights(in), c.layout)};
                 },
             .reference =
                 [&](const Tensors& in) {
                   const Tensor y = Zeros({RowsOf(c), c.out}, DType::kFloat64);
                   int64_t row = 0;
                   for (size_t i = 0; i < c.counts.size(); ++i) {
                     const double* w = in[i + 1].data<double>();
                     for (const int64_t end = row + c.counts[i]; row < end; ++row) {
                       for (int64_t o = 0; o < c.out; ++o) {
                         for (int64_t k = 0; k < c.in; ++k) {
                           const int64_t at =
                               c.layout == LinearLayout::kOutIn ? o * c.in + k : k * c.out + o;
                           y.data<double>()[row * c.out + o] +=
                               in[0].data<double>()[row * c.in + k] * w[at];
                         }
                       }
                     }
                   }
                   return Tensors{y};
                 },
             .inputs = InputsOf(c),
             .sum_length = static_cast<double>(c.in)});
  }
}

// The bits of a layer on its rows alone, forward and backward, of any sizes and numbers of threads.
TEST(GroupedLinearTest, HasTheBitsOfEachLayer) {
  const Case c = {{700, 1, 0, 96, 97, 333, 8}, 150, 70, LinearLayout::kOutIn};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const Tensors inputs = InputsOf(c);
    const Tensor grad = CastCopy(RandomTensor({RowsOf(c), c.out}, 5), dtype);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      const ExecutionModeScope<&ExecutionContext::threads> scope(&pool);
      Tensors leaves;
      for (const Tensor& t : inputs) leaves.push_back(RequireGrad(CastCopy(t, dtype)));
      const Tensor y = GroupedLinear(leaves[0], c.counts, Weights(leaves), c.layout);
      Backward({y}, {grad});
      int64_t row = 0;
      for (size_t i = 0; i < c.counts.size(); ++i) {
        const Tensor x =
            RequireGrad(CastCopy(Slice(inputs[0], 0, row, c.counts[i]).ContiguousCopy(), dtype));
        const Tensor w = RequireGrad(CastCopy(inputs[i + 1], dtype));
        const Tensor alone = Linear(x, w, {}, c.layout);
        Backward({alone}, {Slice(grad, 0, row, c.counts[i]).ContiguousCopy()});
        const auto part = [&](const Tensor& t) {
          return Slice(t, 0, row, c.counts[i]).ContiguousCopy().ToVector<float>();
        };
        EXPECT_EQ(part(y.Detach()), alone.ToVector<float>()) << i;
        EXPECT_EQ(part(Grad(leaves[0])), Grad(x).ToVector<float>()) << i;
        EXPECT_EQ(Grad(leaves[i + 1]).ToVector<float>(), Grad(w).ToVector<float>()) << i;
        row += c.counts[i];
      }
    }
  }
}

TEST(GroupedLinearTest, WhatDoesNotFitIsNamed) {
  const Tensor x = RandomTensor({3, 2}, 1);
  const Tensor w = RandomTensor({4, 2}, 2);
  const auto message = [&](const std::vector<int64_t>& counts, const Tensors& weights) {
    try {
      GroupedLinear(x, counts, weights, LinearLayout::kOutIn);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({1, 1}, {w, w}).find("2 counts of 2 rows"), std::string::npos);
  EXPECT_NE(message({3}, {w, w}).find("1 counts of 3 rows and 2 weights"), std::string::npos);
  EXPECT_NE(message({1, 2}, {w, RandomTensor({4, 3}, 3)}).find("a weight"), std::string::npos);
  EXPECT_EQ(message({1, 2}, {w, w}), "");
}

}  // namespace
}  // namespace tessera
