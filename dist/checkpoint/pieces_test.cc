// SPDX-License-Identifier: Apache-2.0
#include "dist/checkpoint/pieces.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tessera::dist {
namespace {

const Shape kShape = {4, 3, 5};

// How often each element of kShape lies in the boxes, and the elements in the boxes' order.
void Visit(const std::vector<Box>& boxes, std::vector<int>* count, std::vector<int64_t>* order) {
  for (const Box& box : boxes) {
    for (int64_t i = 0; i < box.size[0]; ++i) {
      for (int64_t j = 0; j < box.size[1]; ++j) {
        for (int64_t k = 0; k < box.size[2]; ++k) {
          const int64_t at = ((box.begin[0] + i) * 3 + box.begin[1] + j) * 5 + box.begin[2] + k;
          ++(*count)[static_cast<size_t>(at)];
          order->push_back(at);
        }
      }
    }
  }
}

TEST(PiecesTest, EveryRangeIsFewBoxesInOrder) {
  const Box whole = {{0, 0, 0}, kShape};
  for (int64_t begin = 0; begin <= 60; ++begin) {
    for (int64_t end = begin; end <= 60; ++end) {
      const std::vector<Box> boxes = BoxesOf({whole, ElementRange{begin, end}});
      EXPECT_LE(boxes.size(), 5u);
      std::vector<int> count(60);
      std::vector<int64_t> order;
      Visit(boxes, &count, &order);
      ASSERT_EQ(std::ssize(order), end - begin);
      for (size_t i = 0; i < order.size(); ++i) {
        ASSERT_EQ(order[i], begin + static_cast<int64_t>(i)) << begin << " to " << end;
      }
    }
  }
}

TEST(PiecesTest, WhatIsLeftAfterHolesIsWhatNoHoleCovers) {
  std::mt19937 random(7);
  const auto one_of = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<Box> left = {{{0, 0, 0}, kShape}};
    std::vector<int> holes(60);
    for (int h = 0; h < 4; ++h) {
      Box hole = {{0, 0, 0}, {0, 0, 0}};
      for (int d = 0; d < 3; ++d) {
        hole.begin[d] = one_of(kShape[d]);
        hole.size[d] = 1 + one_of(kShape[d] - hole.begin[d]);
      }
      Subtract(hole, &left);
      std::vector<int64_t> ignored;
      Visit({hole}, &holes, &ignored);
      std::vector<int> count(60);
      Visit(left, &count, &ignored);
      for (size_t i = 0; i < 60; ++i) ASSERT_EQ(count[i], holes[i] == 0 ? 1 : 0) << i;
    }
  }
}

TEST(PiecesTest, ScalarsMeet) {
  std::vector<Box> left = {Box{}};
  EXPECT_EQ(CountElements(left), 1);
  EXPECT_TRUE(Intersection(Box{}, Box{}).has_value());
  Subtract(Box{}, &left);
  EXPECT_EQ(CountElements(left), 0);
}

}  // namespace
}  // namespace tessera::dist
