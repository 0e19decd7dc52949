// SPDX-License-Identifier: Apache-2.0
#include "nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace tessera::nn {
namespace {

constexpr double kPi = std::numbers::pi;

void Check(const RotaryConfig& config, int64_t dims) {
  const RotaryScaling& s = config.scaling;
  TESSERA_CHECK(
      config.base > 0 && config.share > 0 && config.share <= 1 && dims >= 2 && dims % 2 == 0,
      "rotary", "base ", config.base, ", ", dims, " features (share ", config.share,
      "): needed are a base above 0 and pairs of features");
  TESSERA_CHECK(s.attention_factor == 0 || s.kind == RotaryScaling::kYarn ||
                    s.kind == RotaryScaling::kLongRope,
                "rotary", "an attention factor is of YaRN and LongRoPE");
  if (s.kind == RotaryScaling::kNone) return;
  TESSERA_CHECK(s.factor >= 1, "rotary", "a scaling factor of ", s.factor, " is below 1");
  TESSERA_CHECK(s.kind == RotaryScaling::kLinear || s.original_positions > 1, "rotary",
                "the scaling needs original_positions, got ", s.original_positions);
  TESSERA_CHECK(s.kind != RotaryScaling::kDynamic || dims > 2, "rotary",
                "dynamic scaling needs more than one pair of features");
  TESSERA_CHECK(
      s.kind != RotaryScaling::kLlama3 ||
          (s.low_frequency_factor > 0 && s.low_frequency_factor < s.high_frequency_factor),
      "rotary", "low_frequency_factor ", s.low_frequency_factor,
      " is not between 0 and high_frequency_factor ", s.high_frequency_factor);
  TESSERA_CHECK(s.kind != RotaryScaling::kYarn || config.base > 1, "rotary", "YaRN with base ",
                config.base);
  TESSERA_CHECK(s.kind != RotaryScaling::kYarn || (s.beta_slow > 0 && s.beta_fast > s.beta_slow),
                "rotary", "beta_slow ", s.beta_slow, " is not between 0 and beta_fast ",
                s.beta_fast);
  const auto pairs = static_cast<size_t>(dims / 2);
  TESSERA_CHECK(s.kind != RotaryScaling::kLongRope ||
                    (s.short_factors.size() == pairs && s.long_factors.size() == pairs),
                "rotary", s.short_factors.size(), " short and ", s.long_factors.size(),
                " long factors for ", pairs, " pairs");
}

double DynamicBase(const RotaryConfig& config, int64_t dims, int64_t length) {
  const RotaryScaling& s = config.scaling;
  const auto original = static_cast<double>(s.original_positions);
  const double n = std::max(static_cast<double>(length), original);
  const auto d = static_cast<double>(dims);
  return config.base * std::pow(s.factor * n / original - (s.factor - 1), d / (d - 2));
}

double Llama3(const RotaryScaling& s, double frequency) {
  const double turns = static_cast<double>(s.original_positions) * frequency / (2 * kPi);
  const double kept = std::clamp(
      (turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor), 0.0,
      1.0);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

void ApplyYarn(const RotaryConfig& config, int64_t dims, std::vector<double>* frequencies) {
  const RotaryScaling& s = config.scaling;
  // The pair that turns so many times within the original length.
  const auto pair_turning = [&](double turns) {
    return static_cast<double>(dims) *
           std::log(static_cast<double>(s.original_positions) / (turns * 2 * kPi)) /
           (2 * std::log(config.base));
  };
  double low = pair_turning(s.beta_fast);
  double high = pair_turning(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dims - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies->size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / s.factor * ramp + frequency * (1 - ramp);
  }
}

double AttentionFactor(const RotaryScaling& s) {
  if (s.attention_factor != 0) return s.attention_factor;
  const double log_factor = std::log(s.factor);
  if (s.kind == RotaryScaling::kYarn) {
    const auto scale = [&](double m) { return 0.1 * m * log_factor + 1; };
    return s.mscale != 0 && s.mscale_all_dim != 0 ? scale(s.mscale) / scale(s.mscale_all_dim)
                                                  : scale(1);
  }
  if (s.kind == RotaryScaling::kLongRope) {
    return std::sqrt(1 + log_factor / std::log(static_cast<double>(s.original_positions)));
  }
  return 1.0;
}

}  // namespace

RotaryOptions RotaryFor(const RotaryConfig& config, int64_t head_dim, int64_t length) {
  const auto dims = static_cast<int64_t>(static_cast<double>(head_dim) * config.share);
  Check(config, dims);
  const RotaryScaling& s = config.scaling;
  const double base =
      s.kind == RotaryScaling::kDynamic ? DynamicBase(config, dims, length) : config.base;
  RotaryOptions options = {.inverse_frequencies = RotaryFrequencies(dims, base),
                           .scale = AttentionFactor(s),
                           .pairs = config.pairs};
  std::vector<double>& frequencies = options.inverse_frequencies;
  if (s.kind == RotaryScaling::kYarn) ApplyYarn(config, dims, &frequencies);
  const std::vector<double>& factors =
      length > s.original_positions ? s.long_factors : s.short_factors;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    if (s.kind == RotaryScaling::kLinear) frequencies[i] /= s.factor;
    if (s.kind == RotaryScaling::kLlama3) frequencies[i] = Llama3(s, frequencies[i]);
    if (s.kind == RotaryScaling::kLongRope) frequencies[i] /= factors[i];
  }
  return options;
}

int64_t RotaryLengthKind(const RotaryConfig& config, int64_t length) {
  const RotaryScaling& s = config.scaling;
  if (length <= s.original_positions) return 0;
  if (s.kind == RotaryScaling::kDynamic) return length;
  return s.kind == RotaryScaling::kLongRope ? 1 : 0;
}

}  // namespace tessera::nn
