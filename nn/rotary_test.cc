// SPDX-License-Identifier: Apache-2.0
#include "nn/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"

namespace tessera::nn {
namespace {

struct Case {
  std::string name;
  RotaryConfig config;
  int64_t length;
  std::vector<double> frequencies;
  double scale;
};

// What transformers 4.57.6 computes (in float32) for heads of 16 features.
TEST(RotaryScalingTest, FrequenciesAreThoseOfTransformers) {
  const RotaryScaling longrope = {.kind = RotaryScaling::kLongRope,
                                  .factor = 4.0,
                                  .original_positions = 64,
                                  .short_factors = {1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7},
                                  .long_factors = {2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0}};
  const RotaryScaling dynamic = {
      .kind = RotaryScaling::kDynamic, .factor = 4.0, .original_positions = 64};
  const RotaryScaling yarn = {
      .kind = RotaryScaling::kYarn, .factor = 4.0, .original_positions = 64};
  RotaryScaling weighted = yarn;
  weighted.attention_factor = 1.5;
  const std::vector<double> plain = {1.0,  0.316227764,   0.100000001,   0.0316227786,
                                     0.01, 0.00316227786, 0.00100000005, 0.000316227786};
  const std::vector<double> yarned = {
      1.0,           0.237170815,    0.049999997,    0.00790569466,
      0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};
  const std::vector<Case> cases = {
      {"none", {}, 10, plain, 1.0},
      {"linear",
       {.scaling = {.kind = RotaryScaling::kLinear, .factor = 4.0}},
       10,
       {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466,
        0.000250000012, 7.90569466e-05},
       1.0},
      {"dynamic, short", {.scaling = dynamic}, 40, plain, 1.0},
      {"dynamic, long",
       {.scaling = dynamic},
       100,
       {1.0, 0.267223001, 0.0714081228, 0.0190818924, 0.00509912008, 0.00136260199, 0.000364118576,
        9.730085e-05},
       1.0},
      {"llama3",
       {.base = 500.0,
        .scaling = {.kind = RotaryScaling::kLlama3, .factor = 8.0, .original_positions = 64}},
       10,
       {1.0, 0.459863275, 0.0976166278, 0.0121561559, 0.00559017016, 0.0025707141, 0.00118217699,
        0.000543639821},
       1.0},
      {"yarn", {.scaling = yarn}, 10, yarned, 1.138629436111989},
      {"yarn with a ramp of its own",
       {.base = 1000.0,
        .scaling = {.kind = RotaryScaling::kYarn,
                    .factor = 4.0,
                    .original_positions = 64,
                    .beta_fast = 8.0,
                    .beta_slow = 0.5,
                    .truncate = false,
                    .mscale = 1.0,
                    .mscale_all_dim = 0.5}},
       10,
       {1.0, 0.350755095, 0.10637638, 0.0273430366, 0.00790569466, 0.00333380373, 0.00140585331,
        0.000592843455},
       1.0648216253695715},
      {"yarn with a given factor", {.scaling = weighted}, 10, yarned, 1.5},
      {"longrope, short",
       {.scaling = longrope},
       64,
       {1.0, 0.287479758, 0.0833333358, 0.0243252143, 0.00714285718, 0.00210818532, 0.000624999986,
        0.000186016332},
       1.1547005383792517},
      {"longrope, long",
       {.scaling = longrope},
       65,
       {0.5, 0.126491114, 0.0333333351, 0.00903507881, 0.00249999994, 0.000632455572,
        0.000166666665, 3.95284733e-05},
       1.1547005383792517}};
  for (const Case& c : cases) {
    const RotaryOptions options = RotaryFor(c.config, 16, c.length);
    EXPECT_NEAR(options.scale, c.scale, 1e-12) << c.name;
    ASSERT_EQ(options.inverse_frequencies.size(), c.frequencies.size()) << c.name;
    for (size_t i = 0; i < c.frequencies.size(); ++i) {
      EXPECT_NEAR(options.inverse_frequencies[i] / c.frequencies[i], 1.0, 1e-6)
          << c.name << ", pair " << i;
    }
  }
}

TEST(RotaryScalingTest, TurnsAShareOfTheHead) {
  const RotaryOptions options = RotaryFor({.share = 0.25}, 16, 1);
  EXPECT_EQ(options.inverse_frequencies, RotaryFrequencies(4, 10000.0));
}

TEST(RotaryScalingTest, RefusesWhatMakesNoSense) {
  const auto refuses = [](const RotaryConfig& config, int64_t head_dim = 8) {
    EXPECT_THROW(RotaryFor(config, head_dim, 4), Error);
  };
  using S = RotaryScaling;
  refuses({}, 7);
  refuses({.base = 0});
  refuses({.share = 1.5});
  refuses({.scaling = {.kind = S::kLinear, .factor = 0.5}});
  refuses({.scaling = {.kind = S::kYarn, .factor = 2.0}});
  refuses({.scaling = {.kind = S::kDynamic, .factor = 2.0, .original_positions = 8}}, 2);
  refuses({.scaling = {.kind = S::kLlama3,
                       .factor = 2.0,
                       .original_positions = 8,
                       .low_frequency_factor = 4.0}});
  refuses(
      {.scaling = {.kind = S::kYarn, .factor = 2.0, .original_positions = 8, .beta_slow = 40.0}});
  refuses({.scaling = {.kind = S::kLongRope, .factor = 2.0, .original_positions = 8}});
}

// Of equal kinds, equal frequencies.
TEST(RotaryScalingTest, LengthsOfOneKindRotateAlike) {
  const std::vector<double> once(4, 1.0), twice(4, 2.0);
  for (const RotaryScaling& scaling :
       {RotaryScaling{}, RotaryScaling{.kind = RotaryScaling::kLinear, .factor = 2},
        RotaryScaling{.kind = RotaryScaling::kDynamic, .factor = 2, .original_positions = 16},
        RotaryScaling{.kind = RotaryScaling::kLlama3, .factor = 2, .original_positions = 16},
        RotaryScaling{.kind = RotaryScaling::kYarn, .factor = 2, .original_positions = 16},
        RotaryScaling{.kind = RotaryScaling::kLongRope,
        .factor = 2,
        .original_positions = 16,
        .short_factors = once,
        .long_factors = twice}}) {
    const RotaryConfig config = {.scaling = scaling};
    for (const auto& [a, b] : {std::pair(1, 16), {16, 17}, {17, 18}}) {
      EXPECT_EQ(RotaryLengthKind(config, a) == RotaryLengthKind(config, b),
                RotaryFor(config, 8, a).inverse_frequencies ==
                    RotaryFor(config, 8, b).inverse_frequencies)
          << scaling.kind << " " << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace tessera::nn
