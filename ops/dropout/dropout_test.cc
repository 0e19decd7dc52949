// SPDX-License-Identifier: Apache-2.0
#include "ops/dropout/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

const RandomKey kKey = NoiseKey(3, "block.mlp", 7, 2);

TEST(DropoutTest, DropsByTheElementsIndex) {
  for (const Shape& shape : {Shape{1}, Shape{3, 5, 7}, Shape{2, 1}, Shape{4097}, Shape{0, 2}}) {
    CheckOp(
        {.name = "dropout",
         .op = [](const Tensors& in) { return Tensors{Dropout(in[0], {.p = 0.3, .key = kKey})}; },
         .reference =
             [](const Tensors& in) {
               Tensor y = EmptyLike(in[0]);
               for (int64_t i = 0; i < y.numel(); ++i) {
                 const bool kept = UniformFloat(kKey, static_cast<uint64_t>(i)) >= 0.3f;
                 y.data<double>()[i] = kept ? in[0].data<double>()[i] / 0.7 : 0.0;
               }
               return Tensors{y};
             },
         .inputs = {RandomTensor(shape, 1)}});
  }
}

TEST(DropoutTest, AShardDropsWhatTheWholeDrops) {
  const Tensor x = CastCopy(RandomTensor({4, 6, 10}, 1), DType::kFloat32);
  const Tensor whole = Dropout(x, {.p = 0.5, .key = kKey});
  for (int dim = 0; dim < 3; ++dim) {
    Shape begin = {0, 0, 0};
    begin[dim] = 1;
    const Tensor part = Slice(x, dim, 1, x.size(dim) - 2);
    const Tensor dropped =
        Dropout(part, {.p = 0.5, .key = kKey, .global_shape = x.shape(), .begin = begin});
    EXPECT_EQ(dropped.ToVector<float>(), Slice(whole, dim, 1, x.size(dim) - 2).ToVector<float>());
  }
  const Tensor column = Slice(x, 2, 3, 1);
  EXPECT_EQ(Dropout(column, {.p = 0.5, .key = kKey, .global_shape = x.shape(), .begin = {0, 0, 3}})
                .ToVector<float>(),
            Slice(whole, 2, 3, 1).ToVector<float>());
}

TEST(DropoutTest, KeepsTheExpectedShareAndDiffersByKey) {
  const Tensor x = Full({100000}, 1.0);
  const std::vector<float> a = Dropout(x, {.p = 0.1, .key = kKey}).ToVector<float>();
  const std::vector<float> b =
      Dropout(x, {.p = 0.1, .key = NoiseKey(3, "block.mlp", 7, 3)}).ToVector<float>();
  double kept = 0;
  double both = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    kept += a[i] != 0;
    both += a[i] == 0 && b[i] == 0;
  }
  EXPECT_NEAR(kept / 1e5, 0.9, 0.005);
  EXPECT_NEAR(both / 1e5, 0.01, 0.002);  // independent
}

TEST(DropoutTest, ZeroIsTheIdentityAndMisuseThrows) {
  const Tensor x = Full({3}, 1.0);
  EXPECT_TRUE(Dropout(x, {}).is_same(x));
  EXPECT_THROW(Dropout(x, {.p = 1.0}), Error);
  EXPECT_THROW(Dropout(x, {.p = -0.1}), Error);
  EXPECT_THROW(Dropout(x, {.p = 0.5, .global_shape = {2}}), Error);
  EXPECT_THROW(Dropout(x, {.p = 0.5, .global_shape = {4}, .begin = {2}}), Error);
  EXPECT_THROW(Dropout(Arange(3), {.p = 0.5}), Error);
}

}  // namespace
}  // namespace tessera
