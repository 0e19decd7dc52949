// SPDX-License-Identifier: Apache-2.0
#include "tools/report/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>

#include "absl/strings/str_format.h"

namespace tessera::report {
namespace {

// What numbers of an axis are divided by, and what is behind them then.
struct Scale {
  double divisor = 1;
  std::string suffix;
};

// The largest that `magnitude` reaches, or would be rounded up to.
Scale LargestOf(double magnitude, double base, std::initializer_list<const char*> suffixes) {
  Scale scale = {1, *suffixes.begin()};
  for (const char* suffix : suffixes) {
    if (suffix == *suffixes.begin()) continue;
    if (magnitude < scale.divisor * base * 0.99995) break;
    scale = {scale.divisor * base, suffix};
  }
  return scale;
}

// "e-4" and the unit behind it. Divisors are normal numbers.
Scale PowerOfTen(double magnitude, const char* unit) {
  const int power = std::max(-300, static_cast<int>(std::floor(std::log10(magnitude) + 1e-9)));
  return {std::pow(10.0, power), "e" + std::to_string(power) + unit};
}

Scale ScaleOf(double magnitude, Unit unit) {
  magnitude = std::abs(magnitude);
  const bool huge = magnitude >= (unit == Unit::kMilliseconds ? 1e9 : 1e18);
  switch (unit) {
    case Unit::kBytes:
      if (huge || (magnitude > 0 && magnitude < 1e-3)) return PowerOfTen(magnitude, " B");
      return LargestOf(magnitude, 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
    case Unit::kMilliseconds:
      if (huge || (magnitude > 0 && magnitude < 1e-3)) return PowerOfTen(magnitude, " ms");
      return LargestOf(magnitude, 1000, {" ms", " s"});
    case Unit::kSteps:
      return {};
    case Unit::kNone:
    case Unit::kCount:
      break;
  }
  if (huge || (magnitude > 0 && magnitude < 1e-2)) return PowerOfTen(magnitude, "");
  return LargestOf(magnitude, 1000, {"", "k", "M", "G", "T", "P"});
}

std::string Fixed(double value, int decimals) {
  const std::string text = absl::StrFormat("%.*f", decimals, value);
  return text[0] == '-' && std::atof(text.c_str()) == 0 ? text.substr(1) : text;
}

std::string WithoutTrailingZeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// "12,400".
std::string Whole(double value) {
  std::string text = Fixed(value, 0);
  for (int at = static_cast<int>(text.size()) - 3; at > (text[0] == '-' ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

// The round number (1, 2 or 5 times a power of ten) that is nearest to `step`, as factors go.
double RoundStep(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  const double factor = step / power;
  const double rounded = factor < std::sqrt(2.0)    ? 1
                         : factor < std::sqrt(10.0) ? 2
                         : factor < std::sqrt(50.0) ? 5
                                                    : 10;
  return rounded * power;
}

// Decimals that a multiple of `step` needs.
int DecimalsOf(double step) {
  return std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 12);
}

std::string LabelOf(double scaled, int decimals, const Scale& scale, Unit unit) {
  if (unit == Unit::kSteps) return Whole(scaled);
  if (scaled == 0 && unit == Unit::kNone) return "0";
  return Fixed(scaled, decimals) + scale.suffix;
}

}  // namespace

std::string NumberText(double value, Unit unit) {
  if (!std::isfinite(value)) return "not finite";
  if (unit == Unit::kSteps) return Whole(value);
  if (value == 0 && unit == Unit::kNone) return "0";
  const Scale scale = ScaleOf(value, unit);
  const double scaled = std::round(1e6 * (value / scale.divisor)) / 1e6;
  const double magnitude = std::abs(scaled);
  const int before = magnitude >= 1 ? static_cast<int>(std::floor(std::log10(magnitude))) + 1 : 1;
  // Sizes and times are not compared beyond three digits.
  const int digits = unit == Unit::kNone || unit == Unit::kCount ? 4 : 3;
  std::string text = Fixed(scaled, std::clamp(digits - before, 0, digits - 1));
  // Readings of one curve keep their width; counts and powers of ten need no zeros.
  const bool power = scaled == std::floor(scaled) && scale.suffix[0] == 'e';
  if (unit == Unit::kCount || power) text = WithoutTrailingZeros(std::move(text));
  return text + scale.suffix;
}

std::string PercentText(double share) { return WithoutTrailingZeros(Fixed(100 * share, 1)) + " %"; }

double Axis::At(double value) const {
  if (logarithmic) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

Axis LinearAxis(double least, double greatest, const AxisOptions& options) {
  if (options.from_zero && least >= 0) least = 0;
  double span = greatest - least;
  // One value is in the middle; so does what differs by less than its digits.
  if (!(span > 1e-6 * std::max(std::abs(least), std::abs(greatest)))) {
    span = std::max(std::abs(greatest), 1e-290) * 0.2;
    if (greatest == 0 && least == 0) span = 1;
    greatest += span / 2;
    if (!(options.from_zero && least == 0)) least -= span / 2;
    span = greatest - least;
  }
  Axis axis;
  axis.low = options.from_zero && least == 0 ? 0 : least - options.margin * span;
  axis.high = greatest + options.margin * span;
  const Scale scale = ScaleOf(std::max(std::abs(axis.low), std::abs(axis.high)), options.unit);
  const double low = axis.low / scale.divisor, high = axis.high / scale.divisor;
  double step = RoundStep((high - low) / options.most);
  if (options.unit == Unit::kSteps) step = std::max(step, 1.0);
  const int decimals = DecimalsOf(step);
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    const double scaled = i == 0 ? 0 : i * step;
    axis.ticks.push_back({scaled * scale.divisor, LabelOf(scaled, decimals, scale, options.unit)});
  }
  return axis;
}

std::optional<Axis> LogarithmicAxis(double least, double greatest, const AxisOptions& options) {
  if (!(least > 0) || !(greatest > 1.2 * least) || options.unit == Unit::kBytes) {
    return std::nullopt;
  }
  Axis axis;
  axis.logarithmic = true;
  const double margin = std::pow(greatest / least, options.margin);
  axis.low = least / margin;
  axis.high = greatest * margin;
  if (!(axis.low > 1e-300) || !(axis.high / axis.low < 1e300)) return std::nullopt;
  const int first = static_cast<int>(std::floor(std::log10(axis.low)));
  const int last = static_cast<int>(std::ceil(std::log10(axis.high)));
  // Powers of ten where they suffice, then 1, 2, 5 within them; below a decade linear marks.
  const int decades = last - first;
  const std::vector<std::vector<double>> choices = {{1}, {1, 3}, {1, 2, 5}};
  for (size_t choice = choices.size(); choice-- > 0;) {
    axis.ticks.clear();
    const int stride = choice == 0 ? std::max(1, decades / options.most) : 1;
    for (int power = first; power <= last; power += stride) {
      for (const double factor : choices[choice]) {
        const double value = factor * std::pow(10.0, power);
        if (value < axis.low || value > axis.high) continue;
        const Scale scale = ScaleOf(value, options.unit);
        axis.ticks.push_back({value, absl::StrFormat("%g%s", value / scale.divisor, scale.suffix)});
      }
    }
    if (std::ssize(axis.ticks) <= options.most + 1) break;
  }
  if (axis.ticks.size() >= 2) return axis;
  axis.ticks.clear();
  AxisOptions tight = options;
  tight.from_zero = false;
  tight.margin = 0;
  for (Tick& tick : LinearAxis(axis.low, axis.high, tight).ticks) {
    if (tick.value >= axis.low && tick.value <= axis.high) axis.ticks.push_back(std::move(tick));
  }
  return axis;
}

}  // namespace tessera::report
