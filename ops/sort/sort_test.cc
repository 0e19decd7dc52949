// SPDX-License-Identifier: Apache-2.0
#include "ops/sort/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "ops/testing/op_check.h"

namespace tessera {
namespace {

// A column of the middle dim of [outer, count, inner], its places sorted by std::stable_sort.
std::vector<int64_t> SortedPlaces(const double* column, int64_t count, int64_t inner,
                                  SortOrder order) {
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
    const double x = column[a * inner];
    const double y = column[b * inner];
    return order == SortOrder::kAscending ? x < y : y < x;
  });
  return places;
}

// Values of the first k along `dim`, then their indices as numbers.
OpFn FirstOfSorted(int dim, int64_t k, SortOrder order) {
  return [=](const Tensors& in) {
    const int64_t count = in[0].size(dim);
    int64_t inner = 1;
    for (int d = in[0].shape().Normalize(dim) + 1; d < in[0].ndim(); ++d) inner *= in[0].size(d);
    Shape shape = in[0].shape();
    shape[dim] = k;
    Tensor values = Empty(shape, DType::kFloat64);
    Tensor indices = Empty(shape, DType::kFloat64);
    for (int64_t c = 0; k > 0 && c < in[0].numel() / count; ++c) {
      const double* column = in[0].data<double>() + c / inner * count * inner + c % inner;
      const std::vector<int64_t> places = SortedPlaces(column, count, inner, order);
      for (int64_t i = 0; i < k; ++i) {
        const int64_t to = (c / inner * k + i) * inner + c % inner;
        values.data<double>()[to] = column[places[static_cast<size_t>(i)] * inner];
        indices.data<double>()[to] = static_cast<double>(places[static_cast<size_t>(i)]);
      }
    }
    return Tensors{values, indices};
  };
}

struct Case {
  Shape shape;
  int dim;
};
const Case kCases[] = {{{7}, 0}, {{3, 37}, -1}, {{37, 3}, 0}, {{2, 5, 3}, 1}, {{2, 1, 3}, 1}};

// Values and indices against the reference, gradients of the values.
void CheckSorted(const std::string& name, const Case& c, int64_t k, SortOrder order,
                 const std::function<Sorted(const Tensor&)>& op) {
  CheckOp({.name = name,
           .op =
               [&](const Tensors& in) {
                 const Sorted sorted = op(in[0]);
                 return Tensors{sorted.values, sorted.indices};
               },
           .reference = FirstOfSorted(c.dim, k, order),
           .inputs = {RandomTensor(c.shape, 1)},
           .check_gradient = false});
  CheckOp({.name = name,
           .op = [&](const Tensors& in) { return Tensors{op(in[0]).values}; },
           .reference = nullptr,
           .inputs = {RandomTensor(c.shape, 2)}});
}

TEST(SortTest, Sort) {
  for (const Case& c : kCases) {
    for (const SortOrder order : {SortOrder::kAscending, SortOrder::kDescending}) {
      CheckSorted("sort", c, c.shape[c.dim], order,
                  [&](const Tensor& x) { return Sort(x, c.dim, order); });
    }
  }
}

TEST(SortTest, TopK) {
  for (const Case& c : kCases) {
    for (const SortOrder order : {SortOrder::kAscending, SortOrder::kDescending}) {
      for (const int64_t k : {int64_t{1}, (c.shape[c.dim] + 1) / 2, int64_t{0}}) {
        CheckSorted("top_k", c, k, order,
                    [&](const Tensor& x) { return TopK(x, k, c.dim, order); });
      }
    }
  }
}

TEST(SortTest, EqualElementsStayInOrder) {
  // Few values, long enough for algorithms that are not stable by chance.
  const int64_t n = 1000;
  const Tensor few = RandomIndices({n}, 5, 3);
  for (const Device& device : TestDevices()) {
    for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8, DType::kFloat32,
                              DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
      for (const SortOrder order : {SortOrder::kAscending, SortOrder::kDescending}) {
        const Tensor x = CopyTo(CastCopy(few, dtype), device);
        const Tensor wide = CastCopy(few, DType::kFloat64);
        EXPECT_EQ(ArgSort(x, 0, order).ToVector<int64_t>(),
                  SortedPlaces(wide.data<double>(), n, 1, order))
            << dtype << " on " << device;
      }
    }
  }
}

TEST(SortTest, NanIsTheLargestAndZerosAreEqual) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::FromVector<float>({0, nan, -1, inf, -0.0f, -nan, -inf, 2}, {8});
  for (const Device& device : TestDevices()) {
    const Tensor on_device = CopyTo(x, device);
    EXPECT_EQ(ArgSort(on_device, 0).ToVector<int64_t>(),
              (std::vector<int64_t>{6, 2, 0, 4, 7, 3, 1, 5}));
    EXPECT_EQ(ArgSort(on_device, 0, SortOrder::kDescending).ToVector<int64_t>(),
              (std::vector<int64_t>{1, 5, 3, 7, 0, 4, 2, 6}));
    EXPECT_EQ(TopK(on_device, 3, 0).indices.ToVector<int64_t>(), (std::vector<int64_t>{1, 5, 3}));
  }
  const Tensor whole = Tensor::FromVector<int64_t>(
      {5, std::numeric_limits<int64_t>::min(), -5, std::numeric_limits<int64_t>::max()}, {4});
  EXPECT_EQ(ArgSort(whole, 0).ToVector<int64_t>(), (std::vector<int64_t>{1, 2, 0, 3}));
}

TEST(SortTest, Refusals) {
  const Tensor x = Zeros({2, 3});
  EXPECT_THROW(TopK(x, 4, 1), Error);
  EXPECT_THROW(TopK(x, -1, 1), Error);
  EXPECT_THROW(Sort(x, 2), Error);
  EXPECT_EQ(Sort(Zeros({2, 0}), 1).values.shape(), (Shape{2, 0}));
}

}  // namespace
}  // namespace tessera
