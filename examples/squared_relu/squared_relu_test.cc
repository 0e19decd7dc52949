// SPDX-License-Identifier: Apache-2.0
#include "examples/squared_relu/squared_relu.h"

#include <gtest/gtest.h>

#include "ops/testing/op_check.h"

namespace tessera::examples {
namespace {

Tensors Reference(const Tensors& in) {
  Tensor y = EmptyLike(in[0]);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double x = in[0].data<double>()[i];
    y.data<double>()[i] = x > 0 ? x * x : 0;
  }
  return {y};
}

TEST(SquaredReluTest, ValuesAndGradients) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 37}, Shape{2, 0}, Shape{5, 1, 4099}}) {
    CheckOp({.name = "squared_relu",
             .op = [](const Tensors& in) { return Tensors{SquaredRelu(in[0])}; },
             .reference = Reference,
             .inputs = {RandomTensor(shape, 1)},
             .check_gradient = shape.numel() < 1000});
  }
}

TEST(SquaredReluTest, IntegersAreRefused) {
  EXPECT_THROW(SquaredRelu(Full({2}, 1, DType::kInt64)), Error);
}

}  // namespace
}  // namespace tessera::examples
