// SPDX-License-Identifier: Apache-2.0
#include "ops/index/index.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "core/allocator.h"
#include "core/thread_pool.h"
#include "ops/testing/op_check.h"

namespace tessera {
namespace {

TEST(IndexTest, IndexSelectAlongTheMiddle) {
  const Tensor ids = RandomIndices({2, 3}, 5, 9);
  CheckOp({.name = "index_select",
           .op = [](const Tensors& in) { return Tensors{IndexSelect(in[0], 1, in[1])}; },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({4, 2, 3, 7}, DType::kFloat64);
                 for (int64_t i = 0; i < y.numel(); ++i) {
                   const int64_t at = in[1].data<int64_t>()[i / 7 % 6];
                   y.data<double>()[i] = in[0].data<double>()[(i / 42 * 5 + at) * 7 + i % 7];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({4, 5, 7}, 1), ids},
           .sum_length = 6});
}

TEST(IndexTest, EmbeddingWholeAndSharded) {
  const Tensor ids = RandomIndices({3, 40}, 11, 2);
  const auto shard = [](int64_t begin, int64_t rows) {
    return [=](const Tensors& in) {
      Tensor y = Zeros({3, 40, 70}, DType::kFloat64);
      for (int64_t i = 0; i < y.numel(); ++i) {
        const int64_t at = in[1].data<int64_t>()[i / 70] - begin;
        if (at >= 0 && at < rows) y.data<double>()[i] = in[0].data<double>()[at * 70 + i % 70];
      }
      return Tensors{y};
    };
  };
  CheckOp({.name = "embedding",
           .op = [](const Tensors& in) { return Tensors{Embedding(in[0], in[1])}; },
           .reference = shard(0, 11),
           .inputs = {RandomTensor({11, 70}, 1), ids},
           .sum_length = 40});
  CheckOp({.name = "embedding shard",
           .op =
               [](const Tensors& in) {
                 return Tensors{Embedding(in[0], in[1], {.vocab_begin = 4, .global_vocab = 11})};
               },
           .reference = shard(4, 5),
           .inputs = {RandomTensor({5, 70}, 1), ids},
           .sum_length = 40});
}

TEST(IndexTest, EmbeddingGradientOfAHalfTableIsFloat32) {
  const Tensor table = RequireGrad(Zeros({3, 1}, DType::kBFloat16));
  const Tensor y = Embedding(table, Zeros({300}, DType::kInt64));
  Backward({y}, {Full({300, 1}, 1.0, DType::kBFloat16)});
  EXPECT_EQ(Grad(table).dtype(), DType::kFloat32);
  EXPECT_EQ(Grad(table).ToVector<float>()[0], 300.0f);  // would stop at 256 in bfloat16
}

TEST(IndexTest, GatherAndScatterAdd) {
  const Tensor index = RandomIndices({3, 6, 2}, 4, 3);
  CheckOp({.name = "gather",
           .op = [](const Tensors& in) { return Tensors{Gather(in[0], 1, in[1])}; },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({3, 6, 2}, DType::kFloat64);
                 for (int64_t i = 0; i < 36; ++i) {
                   const int64_t at = in[1].data<int64_t>()[i];
                   y.data<double>()[i] = in[0].data<double>()[(i / 12 * 4 + at) * 2 + i % 2];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({3, 4, 2}, 1), index},
           .sum_length = 6});
  CheckOp({.name = "scatter_add",
           .op = [](const Tensors& in) { return Tensors{ScatterAdd(in[0], 1, in[1], in[2])}; },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({3, 4, 2}, DType::kFloat64);
                 CopyInto(y, in[0]);
                 for (int64_t i = 0; i < 36; ++i) {
                   const int64_t at = in[1].data<int64_t>()[i];
                   y.data<double>()[(i / 12 * 4 + at) * 2 + i % 2] += in[2].data<double>()[i];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({3, 4, 2}, 1), index, RandomTensor({3, 6, 2}, 2)},
           .sum_length = 6});
}

// An index may be smaller than x along every dim, and larger along the one that it picks from.
TEST(IndexTest, GatherAndScatterAddOfAPart) {
  const Tensor index = RandomIndices({2, 6, 1}, 4, 3);
  CheckOp({.name = "gather",
           .op = [](const Tensors& in) { return Tensors{Gather(in[0], 1, in[1])}; },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({2, 6, 1}, DType::kFloat64);
                 for (int64_t i = 0; i < 12; ++i) {
                   const int64_t at = in[1].data<int64_t>()[i];
                   y.data<double>()[i] = in[0].data<double>()[(i / 6 * 4 + at) * 2];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({3, 4, 2}, 1), index},
           .sum_length = 6});
  CheckOp({.name = "scatter_add",
           .op = [](const Tensors& in) { return Tensors{ScatterAdd(in[0], -2, in[1], in[2])}; },
           .reference =
               [](const Tensors& in) {
                 Tensor y = Empty({3, 4, 2}, DType::kFloat64);
                 CopyInto(y, in[0]);
                 for (int64_t i = 0; i < 12; ++i) {
                   const int64_t at = in[1].data<int64_t>()[i];
                   y.data<double>()[(i / 6 * 4 + at) * 2] += in[2].data<double>()[i];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({3, 4, 2}, 1), index, RandomTensor({2, 6, 1}, 2)},
           .sum_length = 6});
  const Tensor x = Zeros({3, 2});
  EXPECT_EQ(Gather(x, 0, Zeros({5, 0}, DType::kInt64)).shape(), (Shape{5, 0}));
  EXPECT_THROW(Gather(x, 0, Zeros({1, 3}, DType::kInt64)), Error);
  EXPECT_THROW(Gather(x, 1, Zeros({4, 1}, DType::kInt64)), Error);
  EXPECT_THROW(ScatterAdd(x, 0, Zeros({1, 3}, DType::kInt64), Zeros({1, 3})), Error);
}

TEST(IndexTest, IndexAddAlongTheMiddle) {
  const Tensor indices = Tensor::FromVector<int64_t>({2, 0, 2, 2}, {4});
  CheckOp({.name = "index_add",
           .op = [](const Tensors& in) { return Tensors{IndexAdd(in[0], 1, in[2], in[1])}; },
           .reference =
               [](const Tensors& in) {
                 const Tensor y = CopyTo(in[0], Device::Cpu());
                 const std::vector<double> src = in[1].ToVector<double>();
                 const std::vector<int64_t> at = in[2].ToVector<int64_t>();
                 for (size_t i = 0; i < src.size(); ++i) {
                   const size_t outer = i / 20;
                   const size_t row = i / 5 % 4;
                   y.data<double>()[(outer * 3 + static_cast<size_t>(at[row])) * 5 + i % 5] +=
                       src[i];
                 }
                 return Tensors{y};
               },
           .inputs = {RandomTensor({2, 3, 5}, 1), RandomTensor({2, 4, 5}, 2), indices},
           .sum_length = 4});
  const Tensor x = Zeros({2, 3});
  EXPECT_EQ(IndexAdd(x, -1, Arange(3), Full({2, 3}, 1.0)).ToVector<float>(),
            (std::vector<float>(6, 1)));
  EXPECT_EQ(x.ToVector<float>(), (std::vector<float>(6, 0))) << "x is left as it is";
  EXPECT_THROW(IndexAdd(x, 0, Arange(3), Zeros({3, 3})), Error) << "2 is outside";
  EXPECT_THROW(IndexAdd(x, 0, Arange(2), Zeros({1, 3})), Error);
  EXPECT_THROW(IndexAdd(x, 0, Arange(2), Zeros({2, 3}, DType::kFloat64)), Error);
  EXPECT_THROW(IndexAdd(x, 0, Zeros({1, 1}, DType::kInt64), Zeros({1, 3})), Error);
}

// Counts, in the dtype of what they are added to.
TEST(IndexTest, WholeNumbersAreAdded) {
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;  // beyond what float64 tells apart
  for (const Device& device : TestDevices()) {
    const Tensor ids = CopyTo(Tensor::FromVector<int64_t>({2, 0, 2, 2}, {4}), device);
    for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8}) {
      const Tensor x = CopyTo(Full({3}, 254, dtype), device);
      const Tensor ones = CopyTo(Full({4}, 1, dtype), device);
      const std::vector<int64_t> expected = {255, 254, dtype == DType::kUInt8 ? 1 : 257};
      for (const Tensor& y : {ScatterAdd(x, 0, ids, ones), IndexAdd(x, 0, ids, ones)}) {
        EXPECT_EQ(y.dtype(), dtype);
        EXPECT_EQ(y.ToVector<int64_t>(), expected);
      }
    }
    const Tensor rows =
        CopyTo(Tensor::FromVector<int64_t>({1, 2, 3, kLarge, 5, 6}, {3, 2}), device);
    const Tensor at = CopyTo(Tensor::FromVector<int64_t>({1, 1, 0}, {3}), device);
    EXPECT_EQ(
        IndexAdd(CopyTo(Zeros({2, 2}, DType::kInt64), device), 0, at, rows).ToVector<int64_t>(),
        (std::vector<int64_t>{5, 6, 4, kLarge + 2}));
    EXPECT_EQ(IndexAdd(CopyTo(Zeros({3, 3}, DType::kInt64), device), 1,
                       CopyTo(Tensor::FromVector<int64_t>({2, 2}, {2}), device), rows)
                  .ToVector<int64_t>(),
              (std::vector<int64_t>{0, 0, 3, 0, 0, kLarge + 3, 0, 0, 11}));
  }
  const Tensor mask = Zeros({2}, DType::kBool);
  EXPECT_THROW(ScatterAdd(mask, 0, Zeros({1}, DType::kInt64), Zeros({1}, DType::kBool)), Error);
}

TEST(IndexTest, PaddingGetsNoGradient) {
  for (const int64_t begin : {0, 2}) {
    const Tensor table = RequireGrad(Full({3, 2}, 1.0));
    const Tensor ids = Tensor::FromVector(std::vector<int64_t>{2, 1, 2, 4}, {4});
    const Tensor y =
        Embedding(table, ids, {.vocab_begin = begin, .global_vocab = 5, .padding_idx = 2});
    EXPECT_EQ(y.ToVector<float>()[0], 1.0f);
    Backward({y}, {Full({4, 2}, 1.0)});
    const std::vector<float> expected =
        begin == 0 ? std::vector<float>{0, 0, 1, 1, 0, 0} : std::vector<float>{0, 0, 0, 0, 1, 1};
    EXPECT_EQ(Grad(table).ToVector<float>(), expected);
  }
}

TEST(IndexTest, RefusesWhatLiesOutside) {
  const Tensor x = Zeros({3, 2});
  EXPECT_THROW(IndexSelect(x, 0, Full({1}, 3.0, DType::kInt64)), Error);
  EXPECT_THROW(Embedding(x, Full({1}, -1.0, DType::kInt64)), Error);
  EXPECT_THROW(Embedding(x, Zeros({1}, DType::kInt32)), Error);
  EXPECT_THROW(Gather(x, 0, Full({1, 2}, 5.0, DType::kInt64)), Error);
  EXPECT_THROW(Gather(x, 0, Zeros({1}, DType::kInt64)), Error);
  EXPECT_THROW(ScatterAdd(x, 0, Zeros({1, 2}, DType::kInt64), Zeros({2, 2})), Error);
  EXPECT_NO_THROW(Embedding(x, Full({1}, 3.0, DType::kInt64), {.global_vocab = 4}));
  const Tensor id = Zeros({1}, DType::kInt64);
  EXPECT_THROW(Embedding(x, id, {.padding_idx = 3}), Error);
  EXPECT_THROW(Embedding(x, id, {.padding_idx = -2}), Error);
  EXPECT_NO_THROW(Embedding(x, id, {.global_vocab = 4, .padding_idx = 3}));
}

TEST(IndexTest, OneHot) {
  const Tensor ids = Tensor::FromVector<int64_t>({2, 0, 1, 2}, {2, 2});
  const std::vector<float> expected = {0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1};
  for (const Device& device : TestDevices()) {
    const Tensor y = OneHot(CopyTo(ids, device), 3);
    EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
    EXPECT_EQ(y.ToVector<float>(), expected) << device;
    const Tensor flags = OneHot(WithGaps(CopyTo(ids, device)), 3, DType::kBool);
    EXPECT_EQ(flags.dtype(), DType::kBool);
    EXPECT_EQ(flags.ToVector<float>(), expected) << device;
  }
  EXPECT_EQ(OneHot(Empty({5}, DType::kInt64, Device::Meta()), 7).shape(), (Shape{5, 7}));
  EXPECT_EQ(OneHot(Zeros({0}, DType::kInt64), 3).shape(), (Shape{0, 3}));
  EXPECT_THROW(OneHot(ids, 2), Error);
  EXPECT_THROW(OneHot(Zeros({2}), 2), Error);
}

TEST(IndexTest, GradientBitsDoNotDependOnThreads) {
  const Tensor grad = CastCopy(RandomTensor({500, 130}, 4), DType::kFloat32);
  const auto run = [&] {
    const Tensor table = RequireGrad(Zeros({7, 130}));
    Backward({Embedding(table, RandomIndices({500}, 7, 5))}, {grad});
    return Grad(table).ToVector<float>();
  };
  SetNumThreads(1);
  const std::vector<float> one = run();
  SetNumThreads(3);
  EXPECT_EQ(run(), one);
  SetNumThreads(AvailableCores());
}

// Runs of one row, of a few, and of more than a block of threads has; columns that no block has all
// of, whose groups are whole or not; the bits are those of additions in index order.
TEST(IndexTest, GradientsOfFrequentAndRareRowsAreAddedInOrder) {
  constexpr int64_t kCount = 700;
  const Tensor ids = Zeros({kCount}, DType::kInt64);
  for (int64_t j = 0; j < kCount; ++j) {
    ids.data<int64_t>()[j] = j % 9 == 0 ? 1 + j / 9 % 40 : j % 7 == 0 ? 41 + j % 4 : 45 + j % 2;
  }
  for (const int64_t width : {33, 36, 1300}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Tensor grad = CastCopy(RandomTensor({kCount, width}, 3), dtype);
      const std::vector<float> g = grad.ToVector<float>();
      std::vector<float> expected(static_cast<size_t>(50 * width), 0.0f);
      for (int64_t j = 0; j < kCount; ++j) {
        for (int64_t c = 0; c < width; ++c) {
          expected[static_cast<size_t>(ids.data<int64_t>()[j] * width + c)] +=
              g[static_cast<size_t>(j * width + c)];
        }
      }
      for (const Device& device : TestDevices()) {
        const Tensor table = RequireGrad(Zeros({50, width}, dtype, device));
        Backward({Embedding(table, CopyTo(ids, device))}, {CopyTo(grad, device)});
        EXPECT_EQ(Grad(table).ToVector<float>(), expected)
            << width << " " << dtype << " " << device;
      }
    }
  }
}

TEST(IndexTest, TableGradientsAddUpOverMicroBatches) {
  for (const Device& device : TestDevices()) {
    const Tensor table = RequireGrad(Zeros({5, 3}, DType::kBFloat16, device));
    for (int batch = 1; batch <= 3; ++batch) {
      const Tensor ids = CopyTo(Tensor::FromVector<int64_t>({4, 1, 4, 0}, {2, 2}), device);
      Backward({Embedding(table, ids)}, {Full({2, 2, 3}, batch, DType::kBFloat16, device)});
    }
    const std::vector<float> expected = {6, 6, 6, 6, 6, 6, 0, 0, 0, 0, 0, 0, 12, 12, 12};
    EXPECT_EQ(Grad(table).ToVector<float>(), expected) << device;
  }
}

TEST(IndexTest, MetaCudaCountsTheWorkspace) {
  const Device meta = Device::Meta(DeviceType::kCuda);
  Allocator& allocator = Allocator::For(meta);
  const Tensor table = RequireGrad(Empty({500, 64}, DType::kFloat32, meta));
  const auto peak = [&] {
    const Tensor y = Embedding(table, Empty({1000}, DType::kInt64, meta));
    const Tensor grad = Empty({1000, 64}, DType::kFloat32, meta);
    allocator.ResetPeak();
    const int64_t before = allocator.stats().current_bytes;
    Backward({y}, {grad});
    return allocator.stats().peak_bytes - before;
  };
  // The gradient of the table, four words per index, and what the sort takes of its own: as much
  // again as keys and positions, 1 KiB per 2048 pairs and 32 KiB.
  const auto workspace =
      static_cast<int64_t>(allocator.RoundedSize(16 * 1000 + 8 * 1000 + (1 << 10) + (32 << 10)));
  const auto gradient = static_cast<int64_t>(allocator.RoundedSize(500 * 64 * 4));
  EXPECT_EQ(peak(), gradient + workspace);
  EXPECT_EQ(peak(), gradient + workspace);  // a sum of its own, then added to the one that is there
}

}  // namespace
}  // namespace tessera
