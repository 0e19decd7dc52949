// SPDX-License-Identifier: Apache-2.0
#include "tools/report/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace tessera::report {
namespace {

std::vector<std::string> LabelsOf(const Axis& axis) {
  std::vector<std::string> labels;
  for (const Tick& tick : axis.ticks) labels.push_back(tick.label);
  return labels;
}
using Labels = std::vector<std::string>;

TEST(NumbersTest, AreReadByPeople) {
  EXPECT_EQ(NumberText(2.66430, Unit::kNone), "2.664");
  EXPECT_EQ(NumberText(0, Unit::kNone), "0");
  EXPECT_EQ(NumberText(-0.12, Unit::kNone), "-0.120");
  EXPECT_EQ(NumberText(3e-4, Unit::kNone), "3e-4");
  EXPECT_EQ(NumberText(8.747e-5, Unit::kNone), "8.747e-5");
  EXPECT_EQ(NumberText(24953.58, Unit::kNone), "24.95k");
  EXPECT_EQ(NumberText(999.96, Unit::kNone), "1.000k");
  EXPECT_EQ(NumberText(1e300, Unit::kNone), "1e300");
  EXPECT_EQ(NumberText(859008, Unit::kCount), "859k");
  EXPECT_EQ(NumberText(124439808, Unit::kCount), "124.4M");
  EXPECT_EQ(NumberText(84560704, Unit::kBytes), "80.6 MiB");
  EXPECT_EQ(NumberText(0.0182, Unit::kMilliseconds), "0.02 ms");
  EXPECT_EQ(NumberText(1284, Unit::kMilliseconds), "1.28 s");
  EXPECT_EQ(NumberText(1234567, Unit::kSteps), "1,234,567");
  EXPECT_EQ(NumberText(123, Unit::kSteps), "123");
  EXPECT_EQ(NumberText(std::nan(""), Unit::kBytes), "not finite");
  EXPECT_EQ(PercentText(0.155), "15.5 %");
  EXPECT_EQ(PercentText(1), "100 %");
}

TEST(NumbersTest, AxesHaveRoundTicks) {
  EXPECT_EQ(LabelsOf(LinearAxis(2.4, 5.5, {})),
            (Labels{"2.5", "3.0", "3.5", "4.0", "4.5", "5.0", "5.5"}));
  EXPECT_EQ(LabelsOf(LinearAxis(1e-4, 3e-3, {.from_zero = true})),
            (Labels{"0", "0.5e-3", "1.0e-3", "1.5e-3", "2.0e-3", "2.5e-3", "3.0e-3"}));
  EXPECT_EQ(LabelsOf(LinearAxis(80 << 20, 100 << 20, {.unit = Unit::kBytes, .from_zero = true})),
            (Labels{"0 MiB", "20 MiB", "40 MiB", "60 MiB", "80 MiB", "100 MiB"}));
  EXPECT_EQ(LabelsOf(LinearAxis(1, 3, {.unit = Unit::kSteps})), (Labels{"1", "2", "3"}));
  EXPECT_EQ(LabelsOf(LinearAxis(0, 6000, {.unit = Unit::kSteps, .most = 6})),
            (Labels{"0", "1,000", "2,000", "3,000", "4,000", "5,000", "6,000"}));
}

TEST(NumbersTest, OneValueStandsWithinItsAxis) {
  for (const double value : {0.0, 2.5, -3.0, 1e300, -1e300, 1e-300, 5e-324, 1e15}) {
    const Axis axis = LinearAxis(value, value, {});
    EXPECT_LT(axis.low, value) << value;
    EXPECT_GT(axis.high, value) << value;
    EXPECT_GT(axis.At(value), 0.2) << value;
    EXPECT_LT(axis.At(value), 0.8) << value;
  }
}

TEST(NumbersTest, LogarithmsAreForPositiveNumbersThatDiffer) {
  EXPECT_FALSE(LogarithmicAxis(0, 1, {}));
  EXPECT_FALSE(LogarithmicAxis(-1, 1, {}));
  EXPECT_FALSE(LogarithmicAxis(1, 1.1, {}));
  EXPECT_FALSE(LogarithmicAxis(1e-300, 1e300, {}));
  const auto axis = LogarithmicAxis(0.01, 100, {});
  ASSERT_TRUE(axis);
  EXPECT_EQ(LabelsOf(*axis), (Labels{"0.01", "0.1", "1", "10", "100"}));
  EXPECT_NEAR(axis->At(1), 0.5, 1e-9);
  EXPECT_EQ(LabelsOf(*LogarithmicAxis(0.3, 4.1, {})), (Labels{"0.5", "1", "2"}));
}

// Whatever the numbers are: ticks lie on the axis, ascend, are few, and no label comes twice.
TEST(NumbersTest, TicksAreSoundForAnyNumbers) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform;
  const auto next = [&] { return uniform(random); };
  for (int i = 0; i < 20000; ++i) {
    const double scale = std::pow(10.0, 600 * next() - 300);
    double a = scale * (2 * next() - 1),
           b = next() < 0.5 ? scale * (2 * next() - 1) : a * (1 + 1e-3 * next());
    if (a > b) std::swap(a, b);
    const Unit unit = static_cast<Unit>(i % 4);
    for (const bool logarithmic : {false, true}) {
      const AxisOptions options = {.unit = unit, .from_zero = i % 2 == 0};
      const std::optional<Axis> axis =
          logarithmic ? LogarithmicAxis(a, b, options) : LinearAxis(a, b, options);
      if (!axis) continue;
      ASSERT_LE(axis->low, a);
      ASSERT_GE(axis->high, b);
      ASSERT_LT(axis->low, axis->high);
      ASSERT_LE(axis->ticks.size(), 14u) << a << " " << b << " " << logarithmic;
      std::set<std::string> labels;
      double before = -std::numeric_limits<double>::infinity();
      for (const Tick& tick : axis->ticks) {
        ASSERT_GT(tick.value, before);
        before = tick.value;
        ASSERT_GE(axis->At(tick.value), -1e-6) << a << " " << b;
        ASSERT_LE(axis->At(tick.value), 1 + 1e-6) << a << " " << b;
        ASSERT_TRUE(labels.insert(tick.label).second) << tick.label << " of " << a << " " << b;
        ASSERT_LE(tick.label.size(), 24u) << tick.label << " of " << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::report
