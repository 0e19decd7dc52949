// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace tessera {
namespace {

Tensor Floats(const std::vector<float>& values, const Shape& shape) {
  return Tensor::FromVector<float>(values, shape);
}

TEST(TensorTextTest, NumbersAreAligned) {
  EXPECT_EQ(ToString(Floats({0.5f, -1.25f, NAN, 2, HUGE_VALF, 0.125f}, {2, 3})),
            "tensor([[ 0.5000, -1.2500,     nan],\n"
            "        [ 2.0000,     inf,  0.1250]], float32[2, 3])");
  EXPECT_EQ(ToString(Floats({1, -2, 30}, {3})), "tensor([ 1., -2., 30.], float32[3])");
  EXPECT_EQ(ToString(Floats({1e-5f, 1}, {2})), "tensor([1.0000e-05, 1.0000e+00], float32[2])");
  EXPECT_EQ(ToString(Floats({-HUGE_VALF}, {1})), "tensor([-inf], float32[1])");
}

TEST(TensorTextTest, ScalarsAndWhatHasNoValues) {
  EXPECT_EQ(ToString(Tensor::Scalar(0.5)), "tensor(0.5000, float32[])");
  EXPECT_EQ(ToString(Tensor()), "tensor(undefined)");
  EXPECT_EQ(ToString(Zeros({0, 3})), "tensor([], float32[0, 3])");
  EXPECT_EQ(ToString(Empty({2, 3}, DType::kFloat16, Device::Meta())),
            "tensor(float16[2, 3] on meta:cpu)");
}

TEST(TensorTextTest, DTypes) {
  EXPECT_EQ(ToString(Arange(3)), "tensor([0, 1, 2], int64[3])");
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(ToString(Tensor::FromVector<int64_t>({kLeast, 1}, {2})),
            "tensor([-9223372036854775808,                    1], int64[2])");
  EXPECT_EQ(ToString(CastCopy(Arange(2), DType::kBool)), "tensor([false,  true], bool[2])");
  EXPECT_EQ(ToString(CastCopy(Arange(2), DType::kUInt8)), "tensor([0, 1], uint8[2])");
  EXPECT_EQ(ToString(CastCopy(Arange(2), DType::kInt32)), "tensor([0, 1], int32[2])");
  const Tensor x = Floats({0.1f, 1.5f}, {2});
  EXPECT_EQ(ToString(CastCopy(x, DType::kBFloat16)), "tensor([0.1001, 1.5000], bfloat16[2])");
  EXPECT_EQ(ToString(CastCopy(x, DType::kFloat16)), "tensor([0.1000, 1.5000], float16[2])");
  EXPECT_EQ(ToString(CastCopy(x, DType::kFloat64)), "tensor([0.1000, 1.5000], float64[2])");
  EXPECT_NE(ToString(Full({1}, 1e300, DType::kFloat64)).find("1.0000e+300"), std::string::npos);
}

TEST(TensorTextTest, StridesAreFollowed) {
  const Tensor x = Arange(6).AsStrided({3, 2}, {1, 3}, 0);
  EXPECT_EQ(ToString(x),
            "tensor([[0, 3],\n"
            "        [1, 4],\n"
            "        [2, 5]], int64[3, 2])");
}

TEST(TensorTextTest, LargeTensorsShowTheirEnds) {
  EXPECT_EQ(ToString(Arange(1001)),
            "tensor([   0,    1,    2, ...,  998,  999, 1000], int64[1001])");
  const Tensor x = Arange(2000).AsStrided({1000, 2}, {2, 1}, 0);
  EXPECT_EQ(ToString(x, {.edge = 1}),
            "tensor([[   0,    1],\n"
            "        ...,\n"
            "        [1998, 1999]], int64[1000, 2])");
  // Only what is asked for is short.
  EXPECT_EQ(ToString(Arange(1000)).find("..."), std::string::npos);
}

TEST(TensorTextTest, PlanesAreApartAndLongRowsGoOn) {
  EXPECT_EQ(ToString(Arange(4).AsStrided({2, 1, 2}, {2, 2, 1}, 0)),
            "tensor([[[0, 1]],\n"
            "\n"
            "        [[2, 3]]], int64[2, 1, 2])");
  EXPECT_EQ(ToString(Arange(8), {.line_width = 20}),
            "tensor([0, 1, 2, 3,\n"
            "        4, 5, 6, 7], int64[8])");
}

TEST(TensorTextTest, StreamsShowTheSame) {
  std::ostringstream out;
  out << "x = " << Arange(2) << "\n";
  EXPECT_EQ(out.str(), "x = tensor([0, 1], int64[2])\n");
  EXPECT_EQ(ToString(Floats({0.25f, 1}, {2}), {.digits = 2}), "tensor([0.25, 1.00], float32[2])");
  EXPECT_THROW(ToString(Arange(1), {.digits = -1}), Error);
}

}  // namespace
}  // namespace tessera
