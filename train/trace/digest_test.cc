// SPDX-License-Identifier: Apache-2.0
#include "train/trace/digest.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace tessera::train {
namespace {

uint64_t SumOf(const std::vector<PartDigest>& parts) {
  uint64_t sum = 0;
  for (const PartDigest& part : parts) sum += part.digest;
  return sum;
}

Tensor Numbers(const Shape& shape, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<double>(i % 97) - 40.5);
  return CastCopy(Tensor::FromVector(values, shape), dtype);
}

TEST(DigestTest, PartsAddUpToTheWhole) {
  const Shape shape = {6, 10};
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16, DType::kInt64}) {
    const Tensor whole = Numbers(shape, dtype);
    const uint64_t expected = DigestOf(whole);
    EXPECT_EQ(SumOf(DigestsOf({"whole", whole, Placement::Whole(shape)})), expected);
    for (const int dim : {0, 1}) {  // two ranks, the first with two runs of the dim
      uint64_t sum = 0;
      for (const bool first : {true, false}) {
        const int64_t half = shape[dim] / 2;
        const Placement placement =
            first ? Placement::Split(shape, dim, {{half, 0, 1}, {half, 1, half - 1}})
                  : Placement::Split(shape, dim, {{half, 1, half - 1}, {half, 0, 1}});
        const Tensor local = Empty(placement.local_shape(), dtype, Device::Cpu());
        CopyGlobalToLocal(placement, whole, local);
        sum += SumOf(DigestsOf({"part", local, placement}));
      }
      EXPECT_EQ(sum, expected) << dim;
    }
    uint64_t sum = 0;  // flat shards
    for (const int64_t begin : {0, 13, 47}) {
      const int64_t end = begin == 0 ? 13 : begin == 13 ? 47 : 60;
      const Tensor run = whole.AsStrided({end - begin}, {1}, begin).ContiguousCopy();
      sum +=
          SumOf(DigestsOf({"run", run, Placement::Whole(shape), dist::ElementRange{begin, end}}));
    }
    EXPECT_EQ(sum, expected);
  }
}

TEST(DigestTest, EveryBitAndEveryPlaceCounts) {
  const Tensor t = Numbers({4, 5}, DType::kFloat32);
  const uint64_t digest = DigestOf(t);
  EXPECT_EQ(DigestOf(t.ContiguousCopy()), digest);
  for (int64_t i = 0; i < t.numel(); ++i) {
    for (const uint32_t bit : {1U, 1U << 31}) {
      const Tensor changed = t.ContiguousCopy();
      auto* const bits = static_cast<uint32_t*>(changed.raw_data());
      bits[i] ^= bit;
      EXPECT_NE(DigestOf(changed), digest);
    }
  }
  const Tensor swapped = t.ContiguousCopy();
  std::swap(swapped.data<float>()[3], swapped.data<float>()[7]);
  EXPECT_NE(DigestOf(swapped), digest);
  // Strided: by the elements in row-major order.
  EXPECT_EQ(DigestOf(t.AsStrided({5, 4}, {1, 5}, 0)),
            DigestOf(t.AsStrided({5, 4}, {1, 5}, 0).ContiguousCopy()));
  EXPECT_EQ(DigestText(0xabc), "0000000000000abc");
}

}  // namespace
}  // namespace tessera::train
