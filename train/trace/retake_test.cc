// SPDX-License-Identifier: Apache-2.0
// Tensors put together from what ranks hold of them.
#include <gtest/gtest.h>

#include <numeric>

#include "train/trace/traced_tensor.h"

namespace tessera::train {
namespace {

const Shape kShape = {3, 4};

std::vector<float> Numbers(int64_t count, float first) {
  std::vector<float> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Elements [begin, end) of the tensor of 0, 1, ..., 11, as ZeRO cuts it.
dist::CheckpointTensor Range(int64_t begin, int64_t end) {
  return {"w", Tensor::FromVector(Numbers(end - begin, static_cast<float>(begin)), {end - begin}),
          Placement::Whole(kShape), dist::ElementRange{begin, end}};
}

// Two of its columns, as tensor-parallel ranks have them.
dist::CheckpointTensor Columns(int64_t first) {
  std::vector<float> numbers;
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = first; column < first + 2; ++column) {
      numbers.push_back(static_cast<float>(row * 4 + column));
    }
  }
  return {"w", Tensor::FromVector(numbers, {3, 2}), Placement::Split(kShape, 1, {{4, first, 2}})};
}

std::vector<RetakenTensor> Assembled(const std::vector<dist::CheckpointTensor>& tensors) {
  std::vector<TensorPart> parts;
  for (const dist::CheckpointTensor& t : tensors) {
    for (const TensorPart& part : PartsOf(t)) parts.push_back(part);
  }
  return Assemble(parts);
}

TEST(AssembleTest, PartsOfEveryCutMakeTheWhole) {
  const std::vector<std::vector<dist::CheckpointTensor>> cuts = {
      {Range(0, 12)},
      {Range(0, 5), Range(5, 12)},                       // within a row
      {Range(7, 11), Range(0, 7), Range(11, 12)},        // in any order
      {Columns(0), Columns(2)},                          //
      {Columns(2), Columns(0), Columns(2), Range(3, 9)}  // some elements more than once
  };
  for (const auto& cut : cuts) {
    const std::vector<RetakenTensor> whole = Assembled(cut);
    ASSERT_EQ(whole.size(), 1u);
    EXPECT_EQ(whole[0].name, "w");
    EXPECT_EQ(whole[0].data.shape(), kShape);
    EXPECT_EQ(whole[0].data.ToVector<float>(), Numbers(12, 0));
  }
}

TEST(AssembleTest, ATensorWithAMissingElementIsLeftOut) {
  EXPECT_TRUE(Assembled({}).empty());
  EXPECT_TRUE(Assembled({Range(0, 5), Range(6, 12)}).empty());
  EXPECT_TRUE(Assembled({Columns(0)}).empty());
  const Tensor scalar = Tensor::FromVector<float>({2}, {});
  const std::vector<RetakenTensor> found = Assemble(
      {PartsOf(Columns(0)).at(0), WholePart("scalar", scalar), WholePart("empty", Empty({0, 2}))});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "scalar");
  EXPECT_EQ(found[0].data.Item(), 2);
  EXPECT_EQ(found[1].name, "empty");
}

TEST(AssembleTest, AnIndexIsThatOfTheWhole) {
  EXPECT_EQ(IndexOf(0, kShape), (Shape{0, 0}));
  EXPECT_EQ(IndexOf(7, kShape), (Shape{1, 3}));
  EXPECT_EQ(IndexOf(11, kShape), (Shape{2, 3}));
  EXPECT_EQ(IndexOf(0, {}), Shape());
}

}  // namespace
}  // namespace tessera::train
