// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, and the marks of axes.
//
//   NumberText(24953.58, Unit::kNone)      // "24.95k"
//   NumberText(84560704, Unit::kBytes)     // "80.6 MiB"
//   const Axis axis = LinearAxis(2.61, 5.55, {.unit = Unit::kNone, .most = 5});
//   axis.ticks[0].label                    // "2.5"
#ifndef TESSERA_TOOLS_REPORT_NUMBERS_H_
#define TESSERA_TOOLS_REPORT_NUMBERS_H_

#include <optional>
#include <string>
#include <vector>

namespace tessera::report {

enum class Unit {
  kNone,          // k, M, G, ... by 1000
  kCount,         // likewise, of what is counted: "859k"
  kBytes,         // KiB, MiB, ... by 1024
  kMilliseconds,  // ms, s
  kSteps,         // whole, with thousands separated
};

// Four significant digits, three of sizes and times; "not finite" for what is none.
std::string NumberText(double value, Unit unit);
inline std::string MillisecondsText(double value) { return NumberText(value, Unit::kMilliseconds); }

struct Tick {
  double value = 0;
  std::string label;
};

// "12.5 %" of 0.125.
std::string PercentText(double share);

// What an axis shows, from `low` to `high`, `low` < `high`.
struct Axis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  std::vector<Tick> ticks;

  // From 0 at `low` to 1 at `high`.
  double At(double value) const;
};

struct AxisOptions {
  Unit unit = Unit::kNone;
  int most = 5;            // about so many ticks
  bool from_zero = false;  // where no value is negative
  double margin = 0.04;    // beyond the values, as a share of what they span
};

// Of finite values within 1e300 of zero. Ticks are round numbers, one label never is twice.
Axis LinearAxis(double least, double greatest, const AxisOptions& options);
// nullopt where a logarithm says nothing: values that are not positive, or nearly one value; sizes,
// whose powers of ten are no round numbers.
std::optional<Axis> LogarithmicAxis(double least, double greatest, const AxisOptions& options);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_NUMBERS_H_
