// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "ops/cast/cast.h"
#include "ops/matmul/matmul.h"
#include "ops/quantized/quant_blocks.h"
#include "ops/quantized/quantized_matrix.h"
#include "ops/quantized/testdata/ggml_golden.h"
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

// What is expected of a type.
struct Case {
  QuantType type;
  int64_t unit;  // columns are a multiple of it
  double step;   // most of a number's error, in scales; 0: the search may clip numbers
  // Of numbers that are uniform in [-1, 1): the square root of the mean squared error.
  double error;
};
constexpr Case kCases[] = {
    {QuantType::kInt8, 1, 0.57, 0.0023},  {QuantType::kQ8_0, 32, 0.57, 0.0023},
    {QuantType::kQ4_0, 32, 1.01, 0.039},  {QuantType::kQ4_1, 32, 0.57, 0.037},
    {QuantType::kQ5_0, 32, 1.01, 0.0187}, {QuantType::kQ5_1, 32, 0.57, 0.0181},
    {QuantType::kQ2K, 256, 0, 0.148},     {QuantType::kQ3K, 256, 0, 0.077},
    {QuantType::kQ4K, 256, 0, 0.036},     {QuantType::kQ5K, 256, 0, 0.0177},
    {QuantType::kQ6K, 256, 0, 0.0072},    {QuantType::kIq4Nl, 32, 0, 0.04},
    {QuantType::kIq4Xs, 256, 0, 0.0403},
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << QuantTypeName(c.type); }

// The integers, scales and minima of a row, group by group (kInt8: one scale for all).
struct Row {
  int64_t group = 32;
  std::vector<int> q;
  std::vector<float> scale;
  std::vector<float> minimum;
};

Row RowOf(const QuantizedMatrix& m, int64_t i) {
  const uint8_t* bytes = m.bytes.data<uint8_t>() + i * m.bytes.size(1);
  Row row;
  if (m.type == QuantType::kInt8) {
    for (int64_t j = 0; j < m.columns; ++j) row.q.push_back(static_cast<int8_t>(bytes[j]));
    float scale;
    std::memcpy(&scale, bytes + m.bytes.size(1) - 4, 4);
    row.scale = {scale};
    row.group = m.columns;
    return row;
  }
  const QuantLayout& layout = LayoutOf(m.type);
  row.group = layout.group;
  for (int64_t j = 0; j < m.columns; j += layout.columns, bytes += layout.bytes) {
    const QuantBlock block = ReadBlock(m.type, bytes);
    row.q.insert(row.q.end(), block.q, block.q + layout.columns);
    row.scale.insert(row.scale.end(), block.scale, block.scale + layout.groups());
    row.minimum.insert(row.minimum.end(), block.minimum, block.minimum + layout.groups());
  }
  return row;
}

Row Activations(const float* x, int64_t n, bool whole) {
  const float largest = whole ? 127 : 127 * 255 + 127;
  Row row;
  for (int64_t begin = 0; begin < n; begin += whole ? n : 32) {
    const int64_t end = whole ? n : begin + 32;
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
    row.scale.push_back(most / largest);
    const float inverse = most == 0 ? 0 : largest / most;
    for (int64_t i = begin; i < end; ++i) {
      row.q.push_back(static_cast<int>(std::nearbyint(x[i] * inverse)));
    }
  }
  return row;
}

// The product as the header says it, in its order.
float Reference(const Row& w, const Row& x, QuantType type) {
  if (type == QuantType::kInt8) {
    int64_t sum = 0;
    for (size_t i = 0; i < x.q.size(); ++i) sum += w.q[i] * x.q[i];
    return static_cast<float>(sum) * (w.scale[0] * x.scale[0]);
  }
  float sum = 0;
  const auto group = static_cast<size_t>(w.group);
  for (size_t g = 0; g < w.scale.size(); ++g) {
    int dot = 0, total = 0;
    for (size_t i = g * group; i < (g + 1) * group; ++i) {
      dot += w.q[i] * x.q[i];
      total += x.q[i];
    }
    const float x_scale = x.scale[g * group / 32];
    sum = std::fma(static_cast<float>(dot), w.scale[g] * x_scale, sum);
    if (LayoutOf(type).has_minima()) {
      sum = std::fma(-static_cast<float>(total), w.minimum[g] * x_scale, sum);
    }
  }
  return sum;
}

// The product of the numbers as they are held, in float64, and the sum of the magnitudes.
struct Exact {
  double sum = 0;
  double magnitude = 0;
};
Exact InFloat64(const float* w, const Row& x, int64_t columns) {
  Exact exact;
  for (int64_t i = 0; i < columns; ++i) {
    const double scale = x.scale[x.scale.size() == 1 ? 0 : static_cast<size_t>(i / 32)];
    const double product = double{w[i]} * (x.q[static_cast<size_t>(i)] * scale);
    exact.sum += product;
    exact.magnitude += std::abs(product);
  }
  return exact;
}

class QuantizedTest : public testing::TestWithParam<Case> {
 protected:
  ~QuantizedTest() override { SetActiveIsa(isa_); }
  // At least so many columns as a row of the type can have.
  int64_t Columns(int64_t least) const {
    return (least + GetParam().unit - 1) / GetParam().unit * GetParam().unit;
  }
  const QuantType type_ = GetParam().type;
  const CpuIsa isa_ = ActiveIsa();
};

TEST_P(QuantizedTest, NumbersAreHeldToHalfAStep) {
  const int64_t columns = Columns(96);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    const Tensor w = Random({5, columns}, 1, dtype);
    const QuantizedMatrix m = Quantized(w, type_);
    EXPECT_EQ(m.bytes.shape(), (Shape{5, QuantRowBytes(type_, columns)}));
    const Tensor back = Dequantize(m, DType::kFloat64);
    const Tensor wide = CastCopy(w, DType::kFloat64);
    for (int64_t i = 0; i < 5; ++i) {
      const Row row = RowOf(m, i);
      for (int64_t j = 0; j < columns; ++j) {
        const auto g = static_cast<size_t>(j / row.group);
        const float minimum = row.minimum.empty() ? 0 : row.minimum[g];
        const double held = back.data<double>()[i * columns + j];
        EXPECT_EQ(held, static_cast<float>(row.q[static_cast<size_t>(j)]) * row.scale[g] - minimum);
        // The scale is itself rounded; q4_0 and q5_0 have no number for the far end of the other
        // sign.
        if (GetParam().step == 0) continue;
        EXPECT_LE(std::abs(held - wide.data<double>()[i * columns + j]),
                  GetParam().step * std::abs(row.scale[g]))
            << i << ", " << j;
      }
    }
  }
}

double RootMeanSquare(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double off = double{a.data<float>()[i]} - double{b.data<float>()[i]};
    sum += off * off;
  }
  return std::sqrt(sum / static_cast<double>(a.numel()));
}

// Numbers that are encoded are about as near as they can be, and what was decoded is nearly the
// same once more.
TEST_P(QuantizedTest, TheErrorIsSmallAndDoesNotGrow) {
  Tensor w = Empty({16, 256}, DType::kFloat32);
  for (uint64_t i = 0; i < 4096; ++i) {
    const uint64_t bits = (i * 2654435761 & 0xffffffff) >> 8;
    w.data<float>()[i] = static_cast<float>(static_cast<double>(bits) / 8388608 - 1);
  }
  const Tensor once = Dequantize(Quantized(w, type_), DType::kFloat32);
  const Tensor twice = Dequantize(Quantized(once, type_), DType::kFloat32);
  const double error = RootMeanSquare(w, once);
  EXPECT_LE(error, GetParam().error);
  EXPECT_GE(error, 0.9 * GetParam().error);
  EXPECT_LE(RootMeanSquare(once, twice), 0.25 * error);
  // GGML's own.
  for (const EncodingError& golden : kEncodingErrors) {
    if (golden.type != QuantTypeName(type_)) continue;
    EXPECT_LE(error * error, 1.001 * golden.error);
    EXPECT_GE(error * error, 0.9 * golden.error);
  }
}

// Groups without a range, of one sign, and far from the others in size.
TEST_P(QuantizedTest, HoldsUnevenGroups) {
  const int64_t columns = Columns(256);
  Tensor w = Random({6, columns}, 30);
  float* const x = w.data<float>();
  for (int64_t i = 0; i < columns; ++i) {
    x[i] = 0;
    x[columns + i] = 0.5f;
    x[2 * columns + i] = -0.5f;
    x[3 * columns + i] = 2 + 0.01f * x[3 * columns + i];
    if (i % 256 >= 32) x[4 * columns + i] = 0;
    x[5 * columns + i] *= 1000;
  }
  const Tensor back = Dequantize(Quantized(w, type_), DType::kFloat32);
  const float* const held = back.data<float>();
  const double error = GetParam().error;
  for (int64_t i = 0; i < columns; ++i) {
    EXPECT_EQ(held[i], 0);
    EXPECT_NEAR(held[columns + i], 0.5, 0.5 * error);
    EXPECT_NEAR(held[2 * columns + i], -0.5, 0.5 * error);
  }
  // The error is of numbers up to 1, and grows with the largest.
  for (int64_t row = 3; row < 6; ++row) {
    double largest = 0;
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      largest = std::max(largest, std::abs(double{x[i]}));
    }
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
      EXPECT_NEAR(held[i], x[i], 5 * error * largest) << row << ", " << i;
    }
  }
}

TEST_P(QuantizedTest, ItIsTheSameOfAViewAndOfWhatWasQuantised) {
  const Tensor w = Random({Columns(64), 6}, 2);
  const QuantizedMatrix m = Quantized(Transpose(w, 0, 1), type_);
  const std::vector<uint8_t> bytes = m.bytes.ToVector<uint8_t>();
  EXPECT_EQ(Quantized(Contiguous(Transpose(w, 0, 1)), type_).bytes.ToVector<uint8_t>(), bytes);
  // Elsewhere the number that the scale is made of need not be there again.
  if (type_ != QuantType::kInt8 && type_ != QuantType::kQ8_0) return;
  EXPECT_EQ(Quantized(Dequantize(m, DType::kFloat32), type_).bytes.ToVector<uint8_t>(), bytes);
}

// On every instruction set, odd numbers of groups, of rows and of outputs.
TEST_P(QuantizedTest, ProductsAreThoseOfTheReference) {
  const bool whole = type_ == QuantType::kInt8;
  std::vector<int64_t> widths = {32, 64, 96, 160, 512, 544, 768};
  if (whole) widths = {1, 31, 64, 65, 130, 513, 768};
  if (GetParam().unit == 256) widths = {256, 512, 768, 1280};
  for (const int64_t columns : widths) {
    for (const Shape& size : {Shape{1, 1}, Shape{1, 7}, Shape{1, 35}, Shape{2, 16}, Shape{3, 5},
                              Shape{13, 67}, Shape{40, 17}, Shape{0, 3}}) {
      const int64_t rows = size[0], outputs = size[1];
      const Tensor x = Random({rows, columns}, 3);
      const Tensor bias = Random({outputs}, 4);
      const QuantizedMatrix w = Quantized(Random({outputs, columns}, 5), type_);
      const Tensor dense = Dequantize(w, DType::kFloat32);
      std::vector<Row> w_rows;
      for (int64_t j = 0; j < outputs; ++j) w_rows.push_back(RowOf(w, j));
      for (const CpuIsa isa : kCpuIsas) {
        if (isa > isa_) continue;
        SetActiveIsa(isa);
        const Tensor y = QuantizedLinear(x, w, {});
        const Tensor with_bias = QuantizedLinear(x, w, bias);
        for (int64_t i = 0; i < rows; ++i) {
          const Row row = Activations(x.data<float>() + i * columns, columns, whole);
          for (int64_t j = 0; j < outputs; ++j) {
            const float expected = Reference(w_rows[static_cast<size_t>(j)], row, type_);
            const float found = y.data<float>()[i * outputs + j];
            if (!HasFma(isa)) {
              EXPECT_NEAR(found, expected, 1e-4) << CpuIsaName(isa);
            } else {
              EXPECT_EQ(found, expected)
                  << CpuIsaName(isa) << " " << columns << " " << i << " " << j;
            }
            const Exact exact = InFloat64(dense.data<float>() + j * columns, row, columns);
            EXPECT_NEAR(found, exact.sum, 4e-6 * exact.magnitude + 1e-30);
            EXPECT_EQ(with_bias.data<float>()[i * outputs + j], found + bias.data<float>()[j]);
          }
        }
      }
    }
  }
}

TEST_P(QuantizedTest, IsNearTheDenseProductInEveryDtype) {
  const QuantizedMatrix m = Quantized(Random({40, 256}, 6), type_);
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
  const int64_t columns = Columns(480);
  const QuantizedMatrix w = Quantized(Random({333, columns}, 9), type_);
  const Tensor x = Random({37, columns}, 10);
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
  ASSERT_TRUE(CanQuantize(type_, kColumns));
  for (const double sign : {1.0, -1.0}) {
    const QuantizedMatrix w = Quantized(Full({2, kColumns}, sign), type_);
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
  const int64_t columns = Columns(64);
  const QuantizedMatrix w = Quantized(Random({3, columns}, 11), type_);
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    Tensor x = Random({2, columns}, 12);
    x.data<float>()[columns + 40] = bad;
    const std::vector<float> y = QuantizedLinear(x, w, {}).ToVector<float>();
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_TRUE(std::isfinite(y[j]));
      EXPECT_TRUE(std::isnan(y[3 + j]));
    }
    EXPECT_EQ(Message(Quantize(x, type_).status()),
              "row 1 has a number that is not finite, or too large");
  }
  // What is too small for an inverse is zero.
  const Tensor tiny = Full({1, columns}, 1e-38);
  const std::vector<float> zeros(static_cast<size_t>(columns), 0.0f);
  EXPECT_EQ(QuantizedLinear(tiny, w, {}).ToVector<float>(), std::vector<float>(3, 0.0f));
  EXPECT_EQ(Dequantize(Quantized(tiny, type_), DType::kFloat32).ToVector<float>(), zeros);
  // The scale is a float16.
  if (type_ == QuantType::kInt8) return;
  Tensor large = Random({2, columns}, 12);
  large.data<float>()[columns + 40] = -1e38f;
  EXPECT_EQ(Message(Quantize(large, type_).status()),
            "row 1 has a number that is not finite, or too large");
}

// A matrix with more rows than one piece gives the bytes that each row gives by itself, and an
// error names a row by its number in the matrix.
TEST_P(QuantizedTest, LargeMatricesAreTurnedAPieceAtATime) {
  constexpr int64_t kColumns = 2048;
  const int64_t rows = 2 * QuantizedPieceRows(kColumns) + 5;
  Tensor x = Random({rows, kColumns}, 21);
  const QuantizedMatrix all = Quantized(x, type_);
  for (const int64_t row : {int64_t{0}, rows / 2 - 3, rows / 2, rows - 1}) {
    const Tensor one = x.AsStrided({1, kColumns}, {kColumns, 1}, row * kColumns).ContiguousCopy();
    EXPECT_EQ(RowsOf(all, row, 1).bytes.ContiguousCopy().ToVector<uint8_t>(),
              Quantized(one, type_).bytes.ToVector<uint8_t>());
  }
  EXPECT_THROW(RowsOf(all, rows - 1, 2), Error);
  // Columns as rows.
  const Tensor turned = Transpose(x, 0, 1).ContiguousCopy();
  EXPECT_EQ(Quantized(Transpose(turned, 0, 1), type_).bytes.ToVector<uint8_t>(),
            all.bytes.ToVector<uint8_t>());
  x.data<float>()[(rows - 2) * kColumns + 7] = std::nanf("");
  x.data<float>()[(rows - 1) * kColumns + 7] = std::nanf("");
  EXPECT_EQ(Message(Quantize(x, type_).status()),
            Concat("row ", rows - 2, " has a number that is not finite, or too large"));
}

TEST_P(QuantizedTest, GradientsAreThoseOfTheWeightsAsHeld) {
  const int64_t columns = Columns(64);
  const QuantizedMatrix w = Quantized(Random({7, columns}, 13), type_);
  Tensor x = Random({2, 3, columns}, 14), bias = Random({7}, 15), dy = Random({2, 3, 7}, 16);
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
  const int64_t columns = Columns(32);
  const QuantizedMatrix table = Quantized(Random({10, columns}, 17), type_);
  const Tensor dense = Dequantize(table, DType::kBFloat16);
  const Tensor ids = Tensor::FromVector<int64_t>({3, 0, 9, 3}, {2, 2});
  const Tensor rows = QuantizedEmbedding(table, ids, DType::kBFloat16);
  EXPECT_EQ(rows.shape(), (Shape{2, 2, columns}));
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
  const int64_t columns = Columns(64), other = columns + GetParam().unit;
  const QuantizedMatrix w = Quantized(Random({4, columns}, 18), type_);
  EXPECT_THROW(QuantizedLinear(Random({2, other}, 1), w, {}), Error);
  EXPECT_THROW(QuantizedLinear(Random({2, columns}, 1, DType::kFloat64), w, {}), Error);
  EXPECT_THROW(QuantizedLinear(Random({2, columns}, 1), w, Random({5}, 1)), Error);
  EXPECT_THROW(Dequantize({type_, other + 64 / GetParam().unit, w.bytes}, DType::kFloat32), Error);
  if (type_ == QuantType::kInt8) return;
  for (const int64_t bad : {columns + 1, columns - GetParam().unit / 2}) {
    EXPECT_FALSE(CanQuantize(type_, bad));
    EXPECT_EQ(Message(Quantize(Random({2, bad}, 1), type_).status()),
              Concat("rows of ", bad, " numbers cannot be ", QuantTypeName(type_)));
  }
}

TEST_P(QuantizedTest, HasShapesOnMeta) {
  const int64_t columns = Columns(64);
  const Tensor meta = Empty({4, columns}, DType::kFloat32, Device::Meta());
  const QuantizedMatrix w = Quantized(meta, type_);
  EXPECT_EQ(QuantizedLinear(Empty({3, columns}, DType::kFloat32, Device::Meta()), w, {}).shape(),
            (Shape{3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Types, QuantizedTest, testing::ValuesIn(kCases), [](const auto& info) {
  return std::string(QuantTypeName(info.param.type));
});

TEST(QuantTypeTest, EachHasANameAndACase) {
  ASSERT_EQ(std::size(kCases), std::size(kQuantTypes));
  for (size_t i = 0; i < std::size(kCases); ++i) {
    EXPECT_EQ(kCases[i].type, kQuantTypes[i]);
    EXPECT_EQ(LayoutOf(kQuantTypes[i]).columns, kCases[i].unit);
    EXPECT_EQ(ParseQuantType(QuantTypeName(kQuantTypes[i])), kQuantTypes[i]);
  }
  EXPECT_EQ(ParseQuantType("Q6_K"), QuantType::kQ6K);
  EXPECT_EQ(ParseQuantType("q6_0"), std::nullopt);
}

// Bit for bit.
TEST(QuantTypeTest, BlocksAreDecodedAsByGgml) {
  ASSERT_EQ(kDecodedBlocks.size(), std::size(kQuantTypes) - 1);
  for (const DecodedBlocks& golden : kDecodedBlocks) {
    SCOPED_TRACE(golden.type);
    const std::optional<QuantType> type = ParseQuantType(golden.type);
    ASSERT_TRUE(type.has_value());
    const auto size = static_cast<int64_t>(golden.bytes.size());
    ASSERT_EQ(QuantRowBytes(*type, 256), size);
    const QuantizedMatrix m = {*type, 256, Tensor::FromVector<uint8_t>(golden.bytes, {1, size})};
    const std::vector<float> found = Dequantize(m, DType::kFloat32).ToVector<float>();
    std::vector<uint32_t> bits(found.size());
    std::memcpy(bits.data(), found.data(), 4 * found.size());
    EXPECT_EQ(bits, golden.bits);
    // Products read the same blocks: a row of x with a single 1 gives the number.
    Tensor ones = Zeros({256, 256}, DType::kFloat32);
    for (int64_t i = 0; i < 256; ++i) ones.data<float>()[257 * i] = 127;
    const std::vector<float> products = QuantizedLinear(ones, m, {}).ToVector<float>();
    for (size_t i = 0; i < 256; ++i) EXPECT_NEAR(products[i] / 127, found[i], 1e-4);
  }
}

}  // namespace
}  // namespace tessera
