// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/peaks.h"

#include <gtest/gtest.h>

#include "core/cpu_isa.h"

namespace tessera {
namespace {

// A sanitizer's own time would be compared.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kPart = 0;
#else
constexpr double kPart = 1;
#endif

TEST(PeaksTest, EachInstructionSetHasARateAndFartherMemoryIsSlower) {
  double least = 0;
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > DetectedIsa()) continue;
    SCOPED_TRACE(CpuIsaName(isa));
    SetActiveIsa(isa);
    const CpuPeaks peaks = MeasurePeaks(1);
    EXPECT_EQ(peaks.threads, 1);
    EXPECT_GT(peaks.fma_flops, kPart * 1e8);
    EXPECT_GE(peaks.fma_flops, kPart * least / 2);  // a wider set is no slower, but clocks may fall
    EXPECT_EQ(peaks.pairs_flops > 0, CpuIsaName(isa) == "avx512bf16");
    least = peaks.fma_flops;
    ASSERT_GE(peaks.levels.size(), 2u);
    EXPECT_EQ(peaks.levels.back().name, "memory");
    for (const CpuPeaks::Level& level : peaks.levels) {
      EXPECT_GT(level.read, kPart * 1e7) << level.name;
      EXPECT_GT(level.write, kPart * 1e7) << level.name;
    }
    EXPECT_GT(peaks.levels.front().read, kPart * peaks.levels.back().read);
  }
  SetActiveIsa(DetectedIsa());
}

TEST(PeaksTest, TheLongerOfProductsAndReadingIsTheLimit) {
  CpuPeaks peaks;
  peaks.fma_flops = 100;
  peaks.levels = {{"L1", 1000, 50, 50}, {"memory", 0, 10, 10}};
  EXPECT_DOUBLE_EQ(peaks.LeastSeconds({.flops = 200, .bytes = 40}), 2);
  EXPECT_DOUBLE_EQ(peaks.LeastSeconds({.flops = 20, .bytes = 1000}), 20);
  EXPECT_DOUBLE_EQ(peaks.LeastSeconds({.flops = 20, .bytes = 1001}), 100.1);
  EXPECT_DOUBLE_EQ(peaks.LeastSeconds({.flops = 200, .products = DType::kFloat64}), 4);
  EXPECT_DOUBLE_EQ(peaks.ProductRate(DType::kBFloat16), 100);  // without instructions for it
  peaks.pairs_flops = 200;
  EXPECT_DOUBLE_EQ(peaks.ProductRate(DType::kBFloat16), 200);
  EXPECT_DOUBLE_EQ(peaks.ProductRate(DType::kFloat16), 100);
  peaks.tiles_flops = 800;
  EXPECT_DOUBLE_EQ(peaks.ProductRate(DType::kBFloat16), 800);
}

}  // namespace
}  // namespace tessera
