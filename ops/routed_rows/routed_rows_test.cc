// SPDX-License-Identifier: Apache-2.0
#include "ops/routed_rows/routed_rows.h"

#include <gtest/gtest.h>

#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// Rows of 5 tokens, of which one goes nowhere and one to a single place.
Tensor Places() { return Tensor::FromVector<int64_t>({3, 0, -1, 5, 2, 6, -1, -1, 1, 4}, {5, 2}); }

// f(choice, place) for each that goes somewhere.
template <typename F>
void EachPlace(const Tensor& place, F f) {
  for (int64_t i = 0; i < place.numel(); ++i) {
    if (place.data<int64_t>()[i] >= 0) f(i, place.data<int64_t>()[i]);
  }
}

TEST(RoutedRowsTest, Dispatch) {
  for (const int64_t width : {1, 7, 33}) {
    CheckOp({.name = "dispatch_rows",
             .op = [](const Tensors& in) { return Tensors{DispatchRows(in[0], in[1], 7)}; },
             .reference =
                 [width](const Tensors& in) {
                   const Tensor rows = Zeros({7, width}, DType::kFloat64);
                   EachPlace(in[1], [&](int64_t i, int64_t at) {
                     for (int64_t c = 0; c < width; ++c) {
                       rows.data<double>()[at * width + c] =
                           in[0].data<double>()[i / 2 * width + c];
                     }
                   });
                   return Tensors{rows};
                 },
             .inputs = {RandomTensor({5, width}, 3), Places()},
             .sum_length = 2});
  }
}

TEST(RoutedRowsTest, Combine) {
  for (const int64_t width : {1, 7, 33}) {
    CheckOp({.name = "combine_rows",
             .op = [](const Tensors& in) { return Tensors{CombineRows(in[0], in[1], in[2])}; },
             .reference =
                 [width](const Tensors& in) {
                   const Tensor sums = Zeros({5, width}, DType::kFloat64);
                   EachPlace(in[2], [&](int64_t i, int64_t at) {
                     for (int64_t c = 0; c < width; ++c) {
                       sums.data<double>()[i / 2 * width + c] +=
                           in[1].data<double>()[i] * in[0].data<double>()[at * width + c];
                     }
                   });
                   return Tensors{sums};
                 },
             .inputs = {RandomTensor({7, width}, 4), RandomTensor({5, 2}, 5), Places()},
             .sum_length = static_cast<double>(width)});
  }
}

TEST(RoutedRowsTest, NoTokens) {
  const Tensor none = Empty({0, 2}, DType::kInt64);
  EXPECT_EQ(DispatchRows(Empty({0, 3}), none, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(CombineRows(Empty({0, 3}), Empty({0, 2}), none).shape(), (Shape{0, 3}));
}

TEST(RoutedRowsTest, WhatDoesNotFitIsRefused) {
  const Tensor x = RandomTensor({5, 3}, 1);
  EXPECT_THROW(DispatchRows(x, Places(), 6), Error);  // row 6
  EXPECT_THROW(DispatchRows(RandomTensor({4, 3}, 1), Places(), 7), Error);
  EXPECT_THROW(CombineRows(RandomTensor({7, 3}, 1), RandomTensor({5, 3}, 1), Places()), Error);
}

}  // namespace
}  // namespace tessera
