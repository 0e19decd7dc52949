// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/placement.h"

namespace tessera {
namespace {

TEST(TensorTest, ViewsShareElementsAndCopiesDoNot) {
  const Tensor t = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor transposed = t.AsStrided({3, 2}, {1, 3}, 0);
  EXPECT_FALSE(transposed.is_contiguous());
  EXPECT_EQ(transposed.ToVector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  const Tensor copy = transposed.ContiguousCopy();
  t.data<float>()[0] = 10;
  EXPECT_EQ(transposed.ToVector<float>()[0], 10);
  EXPECT_EQ(copy.ToVector<float>()[0], 1);
}

TEST(TensorTest, RefusesWhatWouldLeaveTheStorage) {
  const Tensor t = Zeros({4});
  EXPECT_THROW(t.AsStrided({5}, {1}, 0), Error);
  EXPECT_THROW(t.AsStrided({2}, {-1}, 0), Error);
  EXPECT_THROW(t.AsStrided({2}, {2}, 2), Error);
  EXPECT_THROW(t.data<double>(), Error);
  EXPECT_THROW(CopyInto(t, Zeros({5})), Error);
  EXPECT_THROW(Tensor().shape(), Error);
  EXPECT_THROW(Empty({2, -1}), Error);
  EXPECT_THROW(t.AsStrided({-2, -2}, {-2, 1}, 0), Error);
  EXPECT_THROW(t.AsStrided({2, -1}, {1, 1}, 0), Error);
}

TEST(TensorTest, RefusesNumbersThatADTypeCannotHold) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  struct Range {
    DType dtype;
    std::vector<double> held;
    std::vector<double> refused;
  };
  const std::vector<Range> ranges = {
      {DType::kUInt8, {0, 255}, {300, 256, -1, 1e30, kNan, kInfinity, -kInfinity}},
      {DType::kInt32, {2147483647, -2147483648.0}, {2147483648.0, -2147483649.0, 1e30, kNan}},
      {DType::kInt64, {0x1p62, -0x1p63}, {0x1p63, -0x1.0000000000001p63, kNan, -kInfinity}},
      {DType::kFloat16, {65504, -65504}, {65536, -1e6}},
      {DType::kBFloat16, {0x1.fep127}, {3.4e38, -1e39}},
      {DType::kFloat32, {0x1.fffffep127}, {1e39, -1e300}},
      {DType::kFloat64, {1e300}, {}},
      {DType::kBool, {0, 1}, {}},
  };
  for (const Range& range : ranges) {
    for (const double value : range.held) {
      EXPECT_EQ(Full({2}, value, range.dtype).ToVector<double>(),
                (std::vector<double>{value, value}))
          << DTypeName(range.dtype);
    }
    for (const double value : range.refused) {
      EXPECT_THROW(Full({2}, value, range.dtype), Error) << DTypeName(range.dtype) << " " << value;
      EXPECT_THROW(Full({0}, value, range.dtype), Error) << DTypeName(range.dtype) << " " << value;
      EXPECT_THROW(Tensor::Scalar(value, range.dtype), Error) << DTypeName(range.dtype);
      EXPECT_THROW(Full({2}, value, range.dtype, Device::Meta()), Error) << DTypeName(range.dtype);
    }
    if (!IsFloating(range.dtype)) continue;
    EXPECT_EQ(Full({}, kInfinity, range.dtype).Item(), kInfinity);
    EXPECT_TRUE(std::isnan(Full({}, kNan, range.dtype).Item()));
  }
  // Fractions are cut off, as a cast does.
  EXPECT_EQ(Full({}, -1.5, DType::kInt64).Item(), -1);
  EXPECT_EQ(Full({}, 255.5, DType::kUInt8).Item(), 255);
  // Whatever is not zero is true, however small.
  EXPECT_EQ(Full({}, 1e-300, DType::kBool).Item(), 1);
  EXPECT_EQ(CastCopy(Full({}, 1e-300, DType::kFloat64), DType::kBool).Item(), 1);
  const Tensor t = Zeros({2}, DType::kUInt8);
  try {
    Fill(t, 300);
    FAIL() << "filled";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("uint8 cannot hold 300"), std::string::npos) << e.what();
  }
}

TEST(TensorTest, TensorsOnMetaHaveNoData) {
  const Tensor t = Zeros({2, 3}, DType::kFloat32, Device::Meta());
  EXPECT_EQ(t.raw_data(), nullptr);
  try {
    t.data<float>();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "data: float32[2, 3] on meta:cpu has no elements: a tensor on meta is a shape and a "
              "dtype alone");
  }
}

TEST(TensorTest, CastsRoundToNearestEven) {
  const Tensor x = Tensor::FromVector<float>({1.00390625f, 1.01171875f, -2.5f}, {3});
  EXPECT_EQ(CastCopy(x, DType::kBFloat16).ToVector<float>(),
            (std::vector<float>{1.0f, 1.015625f, -2.5f}));
}

TEST(TensorTest, Float16RoundTripsAllBitPatterns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Float16::ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(Float16::FromFloat(value), bits);
    // Halfway to the next representable number rounds to the even one.
    const float next = Float16::ToFloat(static_cast<uint16_t>(bits + 1));
    if (std::isfinite(value) && std::isfinite(next) && (bits & 0x7fff) != 0x7fff) {
      const float middle = static_cast<float>((static_cast<double>(value) + next) / 2);
      EXPECT_EQ(Float16::FromFloat(middle), bits + (bits & 1)) << bits;
    }
  }
  EXPECT_EQ(Float16::FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(Float16::FromFloat(65519.0f), 0x7bff);
  EXPECT_TRUE(std::isnan(float(Float16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(TensorTest, AddIntoAccumulatesHalfInFloat32) {
  const Tensor dst = Full({3}, 256.0, DType::kFloat32);
  AddInto(dst, Full({3}, 1.0, DType::kBFloat16));
  EXPECT_EQ(dst.ToVector<float>()[2], 257.0f);
}

// What is read is what was there before: of overlapping views, too.
TEST(TensorTest, WritingReadsOverlappingViewsFirst) {
  const auto square = [] { return Tensor::FromVector<float>({1, 2, 3, 4}, {2, 2}); };
  const Tensor added = square();
  AddInto(added, added.AsStrided({2, 2}, {1, 2}, 0));
  EXPECT_EQ(added.ToVector<float>(), (std::vector<float>{2, 5, 5, 8}));
  const Tensor copied = square();
  CopyInto(copied, copied.AsStrided({2, 2}, {1, 2}, 0));
  EXPECT_EQ(copied.ToVector<float>(), (std::vector<float>{1, 3, 2, 4}));
  // Longer than one thread's share, forward and backward.
  const int64_t n = 300000;
  for (const bool forward : {true, false}) {
    const Tensor line = Arange(n);
    AddInto(line.AsStrided({n - 1}, {1}, forward ? 1 : 0),
            line.AsStrided({n - 1}, {1}, forward ? 0 : 1));
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; ++i) {
      const bool alone = i == (forward ? 0 : n - 1);
      wrong += line.data<int64_t>()[i] != (alone ? i : i + (forward ? i - 1 : i + 1)) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0) << forward;
  }
  const Tensor both = square();
  AddInto(both, both);
  EXPECT_EQ(both.ToVector<float>(), (std::vector<float>{2, 4, 6, 8}));
  // Side by side in the same rows, and of another dtype in the same memory.
  const Tensor rows = Tensor::FromVector<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4});
  CopyInto(rows.AsStrided({2, 2}, {4, 1}, 0), rows.AsStrided({2, 2}, {4, 1}, 2));
  EXPECT_EQ(rows.ToVector<float>(), (std::vector<float>{3, 4, 3, 4, 7, 8, 7, 8}));
  CopyInto(rows.AsStrided({2, 3}, {4, 1}, 1), rows.AsStrided({2, 3}, {4, 1}, 0));
  EXPECT_EQ(rows.ToVector<float>(), (std::vector<float>{3, 3, 4, 3, 7, 7, 8, 7}));
  // Other strides and another begin: element 3 is written before it is to be read.
  const Tensor line = Arange(10);
  CopyInto(line.AsStrided({4}, {3}, 0), line.AsStrided({4}, {1}, 1));
  EXPECT_EQ(line.ToVector<int64_t>(), (std::vector<int64_t>{1, 1, 2, 2, 4, 5, 3, 7, 8, 4}));
}

TEST(TensorTest, RefusesToWriteToElementsThatShareMemory) {
  const Tensor row = Zeros({1, 3});
  const Tensor broadcast = row.AsStrided({2, 3}, {0, 1}, 0);
  EXPECT_THROW(AddInto(broadcast, Full({2, 3}, 1)), Error);
  EXPECT_THROW(CopyInto(broadcast, Full({2, 3}, 1)), Error);
  CopyInto(row, Full({1, 3}, 2));
  EXPECT_EQ(row.ToVector<float>(), (std::vector<float>{2, 2, 2}));
}

TEST(TensorTest, RefusesShapesOfMoreBytesThanCanBeCounted) {
  const int64_t large = int64_t{1} << 40;
  for (const Shape& shape : {Shape{large, large}, Shape{large, large, 0}, Shape{int64_t{1} << 62},
                             Shape{int64_t{1} << 32, int64_t{1} << 31}}) {
    EXPECT_THROW(Empty(shape), Error) << shape;
    EXPECT_THROW(Empty(shape, DType::kFloat32, Device::Meta()), Error) << shape;
  }
  EXPECT_EQ(Empty({large, 0}).numel(), 0);
  EXPECT_EQ(Empty({large}, DType::kFloat32, Device::Meta()).numel(), large);
}

TEST(TensorTest, EmptyAndMeta) {
  EXPECT_EQ(Zeros({0, 3}).ToVector<float>().size(), 0u);
  Allocator& meta = Allocator::For(Device::Meta());
  const int64_t before = meta.stats().current_bytes;
  const Tensor big = Empty({int64_t{1} << 30, 16}, DType::kFloat32, Device::Meta());
  EXPECT_EQ(meta.stats().current_bytes - before, int64_t{1} << 36);
  Fill(big, 1.0);
  EXPECT_THROW(big.ToVector<float>(), Error);
}

TEST(AllocatorTest, CountsCurrentAndPeakAndKeepsToALimit) {
  Allocator& cpu = Allocator::For(Device::Cpu());
  cpu.ResetPeak();
  const int64_t before = cpu.stats().current_bytes;
  {
    const Tensor a = Empty({1024});
    const Tensor b = Empty({2048});
    EXPECT_EQ(cpu.stats().current_bytes - before, 4 * (1024 + 2048));
  }
  EXPECT_EQ(cpu.stats().current_bytes, before);
  EXPECT_EQ(cpu.stats().peak_bytes - before, 4 * (1024 + 2048));
  cpu.SetLimit(before + 4096);
  EXPECT_THROW(Empty({2048}), OutOfMemoryError);
  cpu.SetLimit(0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Empty({1}).raw_data()) % 64, 0u);
}

TEST(AllocatorTest, LengthsThatVaryLeaveNoBlocksOfEverySizeBehind) {
  Allocator& cpu = Allocator::For(Device::Cpu());
  cpu.ReleaseCached();
  cpu.ResetPeak();
  for (int64_t mib = 8; mib <= 64; ++mib) Fill(Empty({mib << 18}), 1.0);
  const AllocatorStats stats = cpu.stats();
  EXPECT_LE(stats.reserved_bytes, stats.peak_bytes + stats.peak_bytes / 4 + (int64_t{64} << 20));
  const int64_t cached = stats.reserved_bytes;
  Empty({int64_t{64} << 18});  // the newest is still there
  EXPECT_EQ(cpu.stats().reserved_bytes, cached);
}

// A request finds a cached block that is a little larger, which stays what it is: neither is asked
// of the system again. One that is much larger is left to those who need it.
TEST(AllocatorTest, CachedBlocksServeSmallerRequests) {
  const std::unique_ptr<Allocator> allocator = Allocator::MakeCpu("test");
  constexpr size_t kLarge = size_t{1} << 20;
  constexpr size_t kSmaller = kLarge * 9 / 10;
  void* const first = allocator->Allocate(kLarge);
  allocator->Free(first, kLarge);
  const int64_t reserved = allocator->stats().reserved_bytes;
  void* const second = allocator->Allocate(kSmaller);
  EXPECT_EQ(second, first);
  EXPECT_EQ(allocator->stats().reserved_bytes, reserved);
  EXPECT_EQ(allocator->stats().current_bytes,
            static_cast<int64_t>(allocator->RoundedSize(kSmaller)));
  void* const third = allocator->Allocate(kLarge);
  EXPECT_NE(third, first);
  allocator->Free(third, kLarge);
  allocator->Free(second, kSmaller);
  EXPECT_EQ(allocator->stats().current_bytes, 0);
  EXPECT_EQ(allocator->stats().reserved_bytes, 2 * reserved);
  // Both are whole again.
  void* const blocks[] = {allocator->Allocate(kLarge), allocator->Allocate(kLarge)};
  EXPECT_EQ(allocator->stats().reserved_bytes, 2 * reserved);
  for (void* const block : blocks) allocator->Free(block, kLarge);
  void* const half = allocator->Allocate(kLarge / 2);
  EXPECT_GT(allocator->stats().reserved_bytes, 2 * reserved);
  allocator->Free(half, kLarge / 2);
}

TEST(StorageTest, ReleasedBytesComeBackWithoutCountingAsAChange) {
  const Tensor t = Full({4}, 1.0);
  const uint64_t version = t.storage()->version();
  t.storage()->ReleaseBytes();
  EXPECT_THROW(t.raw_data(), Error);
  t.storage()->ObtainBytes();
  {
    const UncountedWrite write(t.storage());
    Fill(t, 2.0);
  }
  EXPECT_EQ(t.storage()->version(), version);
  EXPECT_EQ(t.ToVector<float>()[3], 2.0f);
}

TEST(PlacementTest, FusedProjectionSplitByHeadsRoundTrips) {
  // Three blocks (q, k, v) of 5 heads of 2, two ranks with 3 and 2 heads.
  Tensor global = Empty({3, 30});
  for (int64_t i = 0; i < 90; ++i) global.data<float>()[i] = static_cast<float>(i);
  const Tensor rebuilt = Zeros({3, 30});
  for (int rank = 0; rank < 2; ++rank) {
    const Share heads = EvenShare(5, 2, rank);
    const Placement::Piece piece{10, heads.begin * 2, heads.count * 2};
    const Placement p = Placement::Split({3, 30}, 1, {piece, piece, piece});
    EXPECT_EQ(p.local_shape(), (Shape{3, 3 * heads.count * 2}));
    const Tensor local = Zeros(p.local_shape());
    CopyGlobalToLocal(p, global, local);
    EXPECT_EQ(local.ToVector<float>()[2 * heads.count], 10.0f + heads.begin * 2);
    CopyLocalToGlobal(p, local, rebuilt);
  }
  EXPECT_EQ(rebuilt.ToVector<float>(), global.ToVector<float>());
}

TEST(PlacementTest, AdjacentPiecesAreOneBox) {
  const Placement whole = Placement::Split({2, 6}, 1, {{2, 0, 2}, {2, 0, 2}, {2, 0, 2}});
  EXPECT_TRUE(whole.is_whole());
  const Placement first = Placement::Split({2, 6}, 1, {{2, 0, 1}, {2, 0, 1}, {2, 0, 1}});
  EXPECT_EQ(first.boxes().size(), 3u);
  EXPECT_FALSE(first.is_whole());
}

TEST(TensorTest, FromBlobViewsTheCallersMemory) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const Tensor x = Tensor::FromBlob(values.data(), {2, 3});
  EXPECT_EQ(x.raw_data(), values.data());
  values[4] = 50;
  EXPECT_EQ(x.ToVector<float>(), values);
  Fill(x, 7.0);
  EXPECT_EQ(values, std::vector<float>(6, 7));
  const std::vector<int64_t> fixed = {1, 2};
  const Tensor y = Tensor::FromBlob(fixed.data(), {2});
  EXPECT_EQ(y.dtype(), DType::kInt64);
  EXPECT_EQ(y.ToVector<int64_t>(), fixed);
  EXPECT_THROW(Fill(y, 0.0), Error);
  auto owned = std::make_shared<std::vector<double>>(3, 1.5);
  Tensor z = Tensor::FromBlob(owned->data(), {3}, owned);
  const std::weak_ptr<std::vector<double>> watch = owned;
  owned.reset();
  EXPECT_EQ(z.ToVector<double>(), std::vector<double>(3, 1.5));
  z = Tensor();
  EXPECT_TRUE(watch.expired());
  EXPECT_THROW(Tensor::FromBlob(static_cast<float*>(nullptr), {1}), Error);
  EXPECT_THROW(Tensor::FromBlob(values.data(), {-1, 2}), Error);
  EXPECT_THROW(Tensor::FromBlob(values.data(), {-1, -2}), Error);
  EXPECT_THROW(Tensor::FromBlob(values.data(), {1LL << 40, 1LL << 40}), Error);
  EXPECT_THROW(Tensor::FromBlob(fixed.data(), {-1, 2}), Error);
  EXPECT_THROW(Tensor::FromBlob(fixed.data(), {-1, -2}), Error);
}

}  // namespace
}  // namespace tessera
