// SPDX-License-Identifier: Apache-2.0
#include "tools/report/decimation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>

namespace tessera::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Curve Waves(int64_t points) {
  Curve curve;
  for (int64_t i = 0; i < points; ++i) {
    curve.push_back({10 + 3 * i, std::sin(static_cast<double>(i))});
  }
  return curve;
}

TEST(DecimationTest, LeavesFewPointsAlone) {
  const Curve curve = Waves(100);
  EXPECT_EQ(Decimate(curve, 100).size(), 100u);
  EXPECT_TRUE(Decimate({}, 100).empty());
}

TEST(DecimationTest, KeepsEndsSpikesAndGaps) {
  Curve curve = Waves(10000);
  curve[3333].value = 50;
  curve[7777].value = -50;
  curve[5000].value = kNone;
  const Curve drawn = Decimate(curve, 400);
  EXPECT_LE(drawn.size(), 400u);
  EXPECT_GT(drawn.size(), 200u);
  EXPECT_EQ(drawn.front().step, curve.front().step);
  EXPECT_EQ(drawn.back().step, curve.back().step);
  int spikes = 0, gaps = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(drawn[i - 1].step, drawn[i].step);
    }
    spikes += std::abs(drawn[i].value) == 50;
    gaps += std::isnan(drawn[i].value) && drawn[i].step == curve[5000].step;
  }
  EXPECT_EQ(spikes, 2);
  EXPECT_EQ(gaps, 1);
}

// A gap at the beginning of each span must not hide what comes behind it.
TEST(DecimationTest, GapsHideNothing) {
  Curve curve = Waves(9001);
  for (size_t i = 0; i < curve.size(); i += 2) curve[i].value = kNone;
  const Curve drawn = Decimate(curve, 300);
  EXPECT_LE(drawn.size(), 300u);
  double least = 0, greatest = 0;
  for (const Point& point : drawn) {
    if (std::isnan(point.value)) continue;
    least = std::min(least, point.value);
    greatest = std::max(greatest, point.value);
  }
  EXPECT_LT(least, -0.99);
  EXPECT_GT(greatest, 0.99);
}

TEST(DecimationTest, TakesStepsFarApart) {
  Curve curve = Waves(1000);
  curve.push_back({int64_t{1} << 53, 1});
  const Curve drawn = Decimate(curve, 8);
  EXPECT_LE(drawn.size(), 8u);
  EXPECT_EQ(drawn.back().step, int64_t{1} << 53);
}

}  // namespace
}  // namespace tessera::report
