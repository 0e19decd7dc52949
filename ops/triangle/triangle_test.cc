// SPDX-License-Identifier: Apache-2.0
#include "ops/triangle/triangle.h"

#include <gtest/gtest.h>

#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// x where inside(row, column), else 0.
template <typename F>
OpFn Inside(F inside) {
  return [inside](const Tensors& in) {
    const Tensor y = CopyTo(in[0], Device::Cpu());
    const int64_t rows = y.size(-2);
    const int64_t columns = y.size(-1);
    for (int64_t i = 0; i < y.numel(); ++i) {
      if (!inside(i / columns % rows, i % columns)) y.data<double>()[i] = 0;
    }
    return Tensors{y};
  };
}

TEST(TriangleTest, BothAtEveryDiagonal) {
  for (int64_t diagonal = -4; diagonal <= 5; ++diagonal) {
    CheckOp({.name = "tril",
             .op = [=](const Tensors& in) { return Tensors{Tril(in[0], diagonal)}; },
             .reference = Inside([=](int64_t r, int64_t c) { return c <= r + diagonal; }),
             .inputs = {RandomTensor({2, 3, 4}, 1)}});
    CheckOp({.name = "triu",
             .op = [=](const Tensors& in) { return Tensors{Triu(in[0], diagonal)}; },
             .reference = Inside([=](int64_t r, int64_t c) { return c >= r + diagonal; }),
             .inputs = {RandomTensor({4, 3}, 2)}});
  }
}

TEST(TriangleTest, OtherDtypes) {
  EXPECT_EQ(Tril(Full({2, 2}, 1, DType::kBool)).ToVector<int>(), (std::vector<int>{1, 0, 1, 1}));
  EXPECT_EQ(Triu(Full({2, 2}, 7, DType::kInt32)).ToVector<int>(), (std::vector<int>{7, 7, 0, 7}));
  EXPECT_THROW(Tril(Zeros({3})), Error);
}

}  // namespace
}  // namespace tessera
