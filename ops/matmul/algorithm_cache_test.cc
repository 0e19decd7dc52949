// SPDX-License-Identifier: Apache-2.0
#include "ops/matmul/algorithm_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/error.h"
#include "ops/matmul/product_layout.h"

namespace tessera {
namespace {

ProductShape Of(int64_t m, int64_t n, int64_t k) {
  ProductShape shape;
  shape.m = m;
  shape.n = n;
  shape.k = k;
  return shape;
}

TEST(AlgorithmCache, MeasuresAShapeOnceAndTakesTheFastest) {
  AlgorithmCache cache;
  const std::vector<double> times = {1.0, std::numeric_limits<double>::infinity(), 0.7, 0.6, 0.65};
  int calls = 0;
  const auto measure = [&](int i) {
    ++calls;
    return times[static_cast<size_t>(i)];
  };
  EXPECT_EQ(cache.Choose(Of(1, 2, 3), 5, measure), 3);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(cache.Choose(Of(1, 2, 3), 5, measure), 3);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(cache.Choose(Of(1, 3, 2), 5, measure), 3);
  EXPECT_EQ(calls, 10);
  // Fewer candidates than when it was measured: the library's own.
  EXPECT_EQ(cache.Choose(Of(1, 2, 3), 2, measure), 0);
}

TEST(AlgorithmCache, NoiseDoesNotDecide) {
  AlgorithmCache cache;
  EXPECT_EQ(cache.Choose(Of(1, 1, 1), 2, [](int i) { return i == 0 ? 1.0 : 0.98; }), 0);
  EXPECT_EQ(cache.Choose(Of(1, 1, 2), 2, [](int i) { return i == 0 ? 1.0 : 0.96; }), 1);
  // Where the library's own fails, any that works is taken.
  const double never = std::numeric_limits<double>::infinity();
  EXPECT_EQ(cache.Choose(Of(1, 1, 3), 2, [&](int i) { return i == 0 ? never : 5.0; }), 1);
}

TEST(AlgorithmCache, OneCandidateIsNotMeasured) {
  AlgorithmCache cache;
  EXPECT_EQ(cache.Choose(Of(4, 4, 4), 1, [](int) -> double { throw Error("measured", ""); }), 0);
  EXPECT_THROW(cache.Choose(Of(4, 4, 5), 0, [](int) { return 1.0; }), Error);
}

TEST(AlgorithmCache, ChoicesGoThroughAFile) {
  AlgorithmCache cache;
  ProductShape shape = Of(8, 9, 10);
  shape.a_batch_stride = int64_t{1} << 40;
  shape.transposed = 3;
  shape.device = 1;
  cache.Choose(shape, 3, [](int i) { return i == 2 ? 1.0 : 2.0; });
  cache.Choose(Of(1, 1, 1), 3, [](int i) { return i == 1 ? 1.0 : 2.0; });
  const std::string text = cache.Format("cuBLASLt 130100, NVIDIA H200");
  AlgorithmCache other;
  ASSERT_TRUE(other.Parse(text, "cuBLASLt 130100, NVIDIA H200").ok());
  EXPECT_EQ(other.size(), 2u);
  EXPECT_EQ(other.Find(shape), 2);
  EXPECT_EQ(other.Find(Of(1, 1, 1)), 1);
  EXPECT_EQ(other.Find(Of(1, 1, 2)), std::nullopt);

  AlgorithmCache third;
  EXPECT_FALSE(third.Parse(text, "cuBLASLt 130200, NVIDIA H200").ok());
  EXPECT_FALSE(third.Parse("", "x").ok());
  for (const char* bad : {"x\n1 2 3\n", "x\n1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 -1\n",
                          "x\n1 1 1 1 0 0 0 0 0 0 0 0 0 0 0 1 7\n", "x\nrubbish\n"}) {
    const Status status = third.Parse(bad, "x");
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_NE(Message(status).find("line 2"), std::string::npos) << Message(status);
  }
  EXPECT_EQ(third.size(), 0u);
}

// op(stored) of what AsColumnMajor gives must be the matrix's transpose, element by element.
void CheckLayout(int64_t d0, int64_t d1, int64_t s0, int64_t s1) {
  const std::optional<ColumnMajor> x = AsColumnMajor(d0, d1, s0, s1);
  ASSERT_TRUE(x.has_value()) << d0 << " " << d1 << " " << s0 << " " << s1;
  EXPECT_GE(x->leading, x->rows);
  EXPECT_EQ(x->transpose ? x->columns : x->rows, d1);
  EXPECT_EQ(x->transpose ? x->rows : x->columns, d0);
  for (int64_t i = 0; i < d0; ++i) {
    for (int64_t j = 0; j < d1; ++j) {
      // op(stored)(j, i)
      const int64_t at = x->transpose ? i + j * x->leading : j + i * x->leading;
      EXPECT_EQ(at, i * s0 + j * s1) << d0 << "x" << d1 << " strides " << s0 << ", " << s1;
    }
  }
}

TEST(ProductLayout, ReadsStridedMatricesWhereTheyAre) {
  CheckLayout(3, 5, 5, 1);
  CheckLayout(3, 5, 9, 1);
  CheckLayout(3, 5, 1, 3);
  CheckLayout(3, 5, 1, 8);
  CheckLayout(1, 5, 77, 1);
  CheckLayout(5, 1, 1, 77);
  CheckLayout(5, 1, 4, 4);
  CheckLayout(1, 5, 9, 4);
  CheckLayout(1, 1, 0, 0);
  EXPECT_FALSE(AsColumnMajor(3, 5, 0, 1).has_value());   // rows that repeat
  EXPECT_FALSE(AsColumnMajor(3, 5, 11, 2).has_value());  // gaps within a row
  EXPECT_FALSE(AsColumnMajor(3, 5, 4, 1).has_value());   // rows that overlap
}

}  // namespace
}  // namespace tessera
