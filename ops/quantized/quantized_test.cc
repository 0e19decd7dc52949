// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "autograd/autograd.h"
#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "ops/cast/cast.h"
#include "ops/matmul/matmul.h"
#include "ops/quantized/quantized_matrix.h"
#include "ops/testing/op_check.h"
#include "ops/view/view.h"

namespace tessera {
namespace {

Tensor Random(const Shape& shape, uint64_t seed, DType dtype = DType::kFloat32) {
  return CastCopy(RandomTensor(shape, seed), dtype);
}

QuantizedMatrix Quantized(const Tensor& matrix, QuantType type) {
  StatusOr<QuantizedMatrix> result = Quantize(matrix, type);
  EXPECT_TRUE(result.ok()) << Message(result.status());
  return *std::move(result);
}

float HalfAt(const uint8_t* from) {
  Float16 half;
  std::memcpy(&half.bits, from, 2);
  return half;
}

// The integers and scales of a row, group by group (kInt8: one scale for all).
struct Row {
  std::vector<int> q;
  std::vector<float> scale;
};

Row RowOf(const QuantizedMatrix& m, int64_t i) {
  const uint8_t* bytes = m.bytes.data<uint8_t>() + i * m.bytes.size(1);
  Row row;
  if (m.type == QuantType::kInt8) {
    for (int64_t j = 0; j < m.columns; ++j) row.q.push_back(static_cast<int8_t>(bytes[j]));
    float scale;
    std::memcpy(&scale, bytes + m.bytes.size(1) - 4, 4);
    row.scale = {scale};
    return row;
  }
  for (int64_t j = 0; j < m.columns; j += 32) {
    row.scale.push_back(HalfAt(bytes));
    bytes += 2;
    if (m.type == QuantType::kQ8_0) {
      for (int k = 0; k < 32; ++k) row.q.push_back(static_cast<int8_t>(*bytes++));
    } else {
      for (int k = 0; k < 16; ++k) row.q.push_back((bytes[k] & 15) - 8);
      for (int k = 0; k < 16; ++k) row.q.push_back((bytes[k] >> 4) - 8);
      bytes += 16;
    }
  }
  return row;
}

Row Activations(const float* x, int64_t n, bool whole) {
  Row row;
  for (int64_t begin = 0; begin < n; begin += whole ? n : 32) {
    const int64_t end = whole ? n : begin + 32;
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
    row.scale.push_back(most / 127.0f);
    const float inverse = most == 0 ? 0 : 127.0f / most;
    for (int64_t i = begin; i < end; ++i) {
      row.q.push_back(static_cast<int>(std::nearbyint(x[i] * inverse)));
    }
  }
  return row;
}

// The product as the header says it, in its order.
float Reference(const Row& w, const Row& x, bool whole) {
  if (whole) {
    int64_t sum = 0;
    for (size_t i = 0; i < x.q.size(); ++i) sum += w.q[i] * x.q[i];
    return static_cast<float>(sum) * (w.scale[0] * x.scale[0]);
  }
  float sum = 0;
  for (size_t g = 0; g < w.scale.size(); ++g) {
    int dot = 0;
    for (size_t i = g * 32; i < g * 32 + 32; ++i) dot += w.q[i] * x.q[i];
    sum = std::fma(static_cast<float>(dot), w.scale[g] * x.scale[g], sum);
  }
  return sum;
}

class QuantizedTest : public testing::TestWithParam<QuantType> {
 protected:
  ~QuantizedTest() override { SetActiveIsa(isa_); }
  const CpuIsa isa_ = ActiveIsa();
};

TEST_P(QuantizedTest, NumbersAreHeldToHalfAStep) {
  const QuantType type = GetParam();
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    const Tensor w = Random({5, 96}, 1, dtype);
    const QuantizedMatrix m = Quantized(w, type);
    EXPECT_EQ(m.bytes.shape(), (Shape{5, QuantRowBytes(type, 96)}));
    const Tensor back = Dequantize(m, DType::kFloat64);
    const Tensor wide = CastCopy(w, DType::kFloat64);
    for (int64_t i = 0; i < 5; ++i) {
      const Row row = RowOf(m, i);
      for (int64_t j = 0; j < 96; ++j) {
        const double scale = row.scale[row.scale.size() == 1 ? 0 : static_cast<size_t>(j / 32)];
        EXPECT_EQ(back.data<double>()[i * 96 + j],
                  static_cast<double>(static_cast<float>(row.q[static_cast<size_t>(j)]) *
                                      static_cast<float>(scale)));
        // The scale is itself rounded; 4 bits have no number for the far end of the other sign.
        const double step = type == QuantType::kQ4_0 ? 1.01 : 0.57;
        EXPECT_LE(std::abs(back.data<double>()[i * 96 + j] - wide.data<double>()[i * 96 + j]),
                  step * std::abs(scale))
            << i << ", " << j;
      }
    }
  }
}

TEST_P(QuantizedTest, ItIsTheSameOfAViewAndOfWhatWasQuantised) {
  const QuantType type = GetParam();
  const Tensor w = Random({64, 6}, 2);
  const QuantizedMatrix m = Quantized(Transpose(w, 0, 1), type);
  const std::vector<uint8_t> bytes = m.bytes.ToVector<uint8_t>();
  EXPECT_EQ(Quantized(Contiguous(Transpose(w, 0, 1)), type).bytes.ToVector<uint8_t>(), bytes);
  if (type == QuantType::kQ4_0) return;  // its scale is that of -8, which need not be there again
  EXPECT_EQ(Quantized(Dequantize(m, DType::kFloat32), type).bytes.ToVector<uint8_t>(), bytes);
}

// On every instruction set, odd numbers of groups, of rows and of outputs.
TEST_P(QuantizedTest, ProductsAreThoseOfTheReference) {
  const QuantType type = GetParam();
  const bool whole = type == QuantType::kInt8;
  std::vector<int64_t> widths = {32, 64, 96, 160, 512, 544, 768};
  if (whole) widths = {1, 31, 64, 65, 130, 513, 768};
  for (const int64_t columns : widths) {
    for (const Shape& size :
         {Shape{1, 1}, Shape{1, 7}, Shape{2, 16}, Shape{3, 5}, Shape{13, 67}, Shape{0, 3}}) {
      const int64_t rows = size[0], outputs = size[1];
      const Tensor x = Random({rows, columns}, 3);
      const Tensor bias = Random({outputs}, 4);
      const QuantizedMatrix w = Quantized(Random({outputs, columns}, 5), type);
      for (const CpuIsa isa : kCpuIsas) {
        if (isa > isa_) continue;
        SetActiveIsa(isa);
        const Tensor y = QuantizedLinear(x, w, {});
        const Tensor with_bias = QuantizedLinear(x, w, bias);
        for (int64_t i = 0; i < rows; ++i) {
          const Row row = Activations(x.data<float>() + i * columns, columns, whole);
          for (int64_t j = 0; j < outputs; ++j) {
            const float expected = Reference(RowOf(w, j), row, whole);
            const float found = y.data<float>()[i * outputs + j];
            if (isa == CpuIsa::kBaseline) {
              EXPECT_NEAR(found, expected, 1e-4) << CpuIsaName(isa);
            } else {
              EXPECT_EQ(found, expected)
                  << CpuIsaName(isa) << " " << columns << " " << i << " " << j;
            }
            EXPECT_EQ(with_bias.data<float>()[i * outputs + j], found + bias.data<float>()[j]);
          }
        }
      }
    }
  }
}

TEST_P(QuantizedTest, IsNearTheDenseProductInEveryDtype) {
  const QuantizedMatrix m = Quantized(Random({40, 256}, 6), GetParam());
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const Tensor x = Random({2, 3, 256}, 7, dtype);
    const Tensor bias = Random({40}, 8, dtype);
    const Tensor y = QuantizedLinear(x, m, bias);
    EXPECT_EQ(y.shape(), (Shape{2, 3, 40}));
    EXPECT_EQ(y.dtype(), dtype);
    const Tensor dense = Linear(CastCopy(x, DType::kFloat64), Dequantize(m, DType::kFloat64),
                                CastCopy(bias, DType::kFloat64), LinearLayout::kOutIn);
    // Activations have 8 bits.
    ExpectClose(CastCopy(y, DType::kFloat64), dense, 0.02, "quantised");
  }
}

TEST_P(QuantizedTest, ARowHasTheSameBitsInAnyBatchAndWithAnyThreads) {
  const QuantizedMatrix w = Quantized(Random({333, 480}, 9), GetParam());
  const Tensor x = Random({37, 480}, 10);
  const int threads = NumThreads();
  SetNumThreads(4);
  const Tensor all = QuantizedLinear(x, w, {});
  for (const int64_t rows : {1, 2, 5}) {
    SetNumThreads(static_cast<int>(rows));
    for (const int64_t begin : {0, 3, 30}) {
      EXPECT_EQ(QuantizedLinear(Slice(x, 0, begin, rows), w, {}).ToVector<float>(),
                Contiguous(Slice(all, 0, begin, rows)).ToVector<float>());
    }
  }
  SetNumThreads(threads);
}

// Sums of integers in 32 bits, where they are as large as they can be.
TEST_P(QuantizedTest, TheLongestRows) {
  constexpr int64_t kColumns = 128 * 1024;
  ASSERT_TRUE(CanQuantize(GetParam(), kColumns));
  for (const double sign : {1.0, -1.0}) {
    const QuantizedMatrix w = Quantized(Full({2, kColumns}, sign), GetParam());
    for (const CpuIsa isa : kCpuIsas) {
      if (isa > isa_) continue;
      SetActiveIsa(isa);
      const std::vector<float> y =
          QuantizedLinear(Full({1, kColumns}, 1.0), w, {}).ToVector<float>();
      for (const float found : y) EXPECT_NEAR(found, sign * kColumns, 0.001 * kColumns);
    }
  }
  EXPECT_EQ(CanQuantize(QuantType::kInt8, kColumns + 1), false);
}

TEST_P(QuantizedTest, WhatIsNotFiniteIsNotHidden) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const QuantizedMatrix w = Quantized(Random({3, 64}, 11), GetParam());
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    Tensor x = Random({2, 64}, 12);
    x.data<float>()[64 + 40] = bad;
    const std::vector<float> y = QuantizedLinear(x, w, {}).ToVector<float>();
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_TRUE(std::isfinite(y[j]));
      EXPECT_TRUE(std::isnan(y[3 + j]));
    }
    EXPECT_EQ(Message(Quantize(x, GetParam()).status()),
              "row 1 has a number that is not finite, or too large");
  }
  // What is too small for an inverse is zero.
  const Tensor tiny = Full({1, 64}, 1e-38);
  EXPECT_EQ(QuantizedLinear(tiny, w, {}).ToVector<float>(), std::vector<float>(3, 0.0f));
  EXPECT_EQ(Dequantize(Quantized(tiny, GetParam()), DType::kFloat32).ToVector<float>(),
            std::vector<float>(64, 0.0f));
}

// A matrix with more rows than one piece gives the bytes that each row gives by itself, and an
// error names a row by its number in the matrix.
TEST_P(QuantizedTest, LargeMatricesAreTurnedAPieceAtATime) {
  constexpr int64_t kColumns = 2048;
  const int64_t rows = 2 * QuantizedPieceRows(kColumns) + 5;
  Tensor x = Random({rows, kColumns}, 21);
  const QuantizedMatrix all = Quantized(x, GetParam());
  for (const int64_t row : {int64_t{0}, rows / 2 - 3, rows / 2, rows - 1}) {
    const Tensor one = x.AsStrided({1, kColumns}, {kColumns, 1}, row * kColumns).ContiguousCopy();
    EXPECT_EQ(RowsOf(all, row, 1).bytes.ContiguousCopy().ToVector<uint8_t>(),
              Quantized(one, GetParam()).bytes.ToVector<uint8_t>());
  }
  EXPECT_THROW(RowsOf(all, rows - 1, 2), Error);
  // Columns as rows.
  const Tensor turned = Transpose(x, 0, 1).ContiguousCopy();
  EXPECT_EQ(Quantized(Transpose(turned, 0, 1), GetParam()).bytes.ToVector<uint8_t>(),
            all.bytes.ToVector<uint8_t>());
  x.data<float>()[(rows - 2) * kColumns + 7] = std::nanf("");
  x.data<float>()[(rows - 1) * kColumns + 7] = std::nanf("");
  EXPECT_EQ(Message(Quantize(x, GetParam()).status()),
            Concat("row ", rows - 2, " has a number that is not finite, or too large"));
}

TEST_P(QuantizedTest, GradientsAreThoseOfTheWeightsAsHeld) {
  const QuantizedMatrix w = Quantized(Random({7, 64}, 13), GetParam());
  Tensor x = Random({2, 3, 64}, 14), bias = Random({7}, 15), dy = Random({2, 3, 7}, 16);
  RequireGrad(x);
  RequireGrad(bias);
  Backward({QuantizedLinear(x, w, bias)}, {dy});
  Tensor other = x.Detach().ContiguousCopy(), other_bias = bias.Detach().ContiguousCopy();
  RequireGrad(other);
  RequireGrad(other_bias);
  Backward({Linear(other, Dequantize(w, DType::kFloat32), other_bias, LinearLayout::kOutIn)}, {dy});
  EXPECT_EQ(Grad(x).ToVector<float>(), Grad(other).ToVector<float>());
  EXPECT_EQ(Grad(bias).ToVector<float>(), Grad(other_bias).ToVector<float>());
}

TEST_P(QuantizedTest, LooksRowsUp) {
  const QuantizedMatrix table = Quantized(Random({10, 32}, 17), GetParam());
  const Tensor dense = Dequantize(table, DType::kBFloat16);
  const Tensor ids = Tensor::FromVector<int64_t>({3, 0, 9, 3}, {2, 2});
  const Tensor rows = QuantizedEmbedding(table, ids, DType::kBFloat16);
  EXPECT_EQ(rows.shape(), (Shape{2, 2, 32}));
  EXPECT_EQ(CastCopy(rows, DType::kFloat32).ToVector<float>(),
            CastCopy(Embedding(dense, ids), DType::kFloat32).ToVector<float>());
  // A shard has rows 5 to 14 of 20.
  const EmbeddingOptions shard = {.vocab_begin = 5, .global_vocab = 20};
  const Tensor far = Tensor::FromVector<int64_t>({4, 8, 15, 14}, {4});
  EXPECT_EQ(CastCopy(QuantizedEmbedding(table, far, DType::kBFloat16, shard), DType::kFloat32)
                .ToVector<float>(),
            CastCopy(Embedding(dense, far, shard), DType::kFloat32).ToVector<float>());
  EXPECT_THROW(QuantizedEmbedding(table, Tensor::FromVector<int64_t>({10}, {1}), DType::kFloat32),
               Error);
}

TEST_P(QuantizedTest, RefusesWhatDoesNotFit) {
  const QuantType type = GetParam();
  const QuantizedMatrix w = Quantized(Random({4, 64}, 18), type);
  EXPECT_THROW(QuantizedLinear(Random({2, 32}, 1), w, {}), Error);
  EXPECT_THROW(QuantizedLinear(Random({2, 64}, 1, DType::kFloat64), w, {}), Error);
  EXPECT_THROW(QuantizedLinear(Random({2, 64}, 1), w, Random({5}, 1)), Error);
  EXPECT_THROW(Dequantize({type, 96, w.bytes}, DType::kFloat32), Error);
  if (type == QuantType::kInt8) return;
  EXPECT_EQ(Message(Quantize(Random({2, 33}, 1), type).status()),
            Concat("rows of 33 numbers cannot be ", QuantTypeName(type)));
}

TEST_P(QuantizedTest, HasShapesOnMeta) {
  const Tensor meta = Empty({4, 64}, DType::kFloat32, Device::Meta());
  const QuantizedMatrix w = Quantized(meta, GetParam());
  EXPECT_EQ(QuantizedLinear(Empty({3, 64}, DType::kFloat32, Device::Meta()), w, {}).shape(),
            (Shape{3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedTest, testing::ValuesIn(kQuantTypes),
                         [](const auto& info) { return std::string(QuantTypeName(info.param)); });

TEST(QuantTypeTest, HasNames) {
  for (const QuantType type : kQuantTypes) EXPECT_EQ(ParseQuantType(QuantTypeName(type)), type);
  EXPECT_EQ(ParseQuantType("q5_0"), std::nullopt);
}

}  // namespace
}  // namespace tessera
