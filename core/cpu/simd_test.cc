// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/cpu/simd_probe.h"
#include "core/dtype.h"
#include "core/random.h"

namespace tessera {
namespace {

struct Isa {
  std::string name;
  const SimdProbe* probe;
};

std::vector<Isa> AvailableProbes() {
#if defined(__aarch64__)
  return {{"neon", &neon::kSimdProbe}};
#else
  std::vector<Isa> isas = {{"baseline", &baseline::kSimdProbe}};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    isas.push_back({"avx2", &avx2::kSimdProbe});
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    isas.push_back({"avx512", &avx512::kSimdProbe});
  }
  return isas;
#endif
}

float FromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

uint32_t ToBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

// Every 1009th float of both signs (4 million, subnormals and NaN among them) and the special ones.
const std::vector<float>& Samples() {
  static const std::vector<float>* samples = [] {
    auto* v = new std::vector<float>();
    for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 1009) {
      v->push_back(FromBits(static_cast<uint32_t>(bits)));
    }
    const float inf = std::numeric_limits<float>::infinity();
    for (float x : {0.0f,
                    -0.0f,
                    inf,
                    -inf,
                    std::nanf(""),
                    1.0f,
                    -1.0f,
                    88.72283f,
                    88.7229f,
                    -87.3366f,
                    -103.97f,
                    -103.98f,
                    0.625f,
                    -0.625f,
                    0.93f,
                    3.92f,
                    4.0f,
                    0.70710678f,
                    1.41421356f,
                    std::numeric_limits<float>::max(),
                    std::numeric_limits<float>::min(),
                    std::numeric_limits<float>::denorm_min()}) {
      v->push_back(x);
    }
    // Where the functions bend: 200001 points of [-20, 20].
    for (int i = -100000; i <= 100000; ++i) v->push_back(static_cast<float>(i) * 2e-4f);
    return v;
  }();
  return *samples;
}

// |got - want| in units of the last place of the float32 nearest to `want`.
double UlpError(float got, double want) {
  const float nearest = static_cast<float>(want);
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) == std::isnan(got) ? 0 : 1e30;
  if (std::isinf(nearest) || std::isinf(got)) {
    // The largest float32 may round to infinity when the exact value is within the bound.
    if (got == nearest) return 0;
    return std::abs(want) > 3.4028e38 && std::abs(got) > 3.4028e38f ? 1 : 1e30;
  }
  const float magnitude = std::abs(nearest);
  const double ulp = static_cast<double>(std::nextafter(magnitude, INFINITY)) - magnitude;
  return std::abs(static_cast<double>(got) - want) / ulp;
}

void CheckFunction(const Isa& isa, const char* name, void (*f)(const float*, float*, int64_t),
                   const std::function<double(double)>& reference, double bound) {
  const std::vector<float>& x = Samples();
  std::vector<float> y(x.size());
  f(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = UlpError(y[i], reference(x[i]));
    if (error > worst) {
      worst = error;
      at = i;
    }
  }
  std::printf("%s %s: %.3f ulp at %.9g\n", isa.name.c_str(), name, worst, x[at]);
  EXPECT_LE(worst, bound) << isa.name << " " << name << "(" << x[at] << ") = " << y[at]
                          << ", exact " << reference(x[at]);
}

TEST(SimdMath, StaysWithinItsBounds) {
  for (const Isa& isa : AvailableProbes()) {
    CheckFunction(
        isa, "Exp", isa.probe->exp, [](double x) { return std::exp(x); }, 2);
    CheckFunction(
        isa, "Log", isa.probe->log, [](double x) { return std::log(x); }, 2);
    CheckFunction(
        isa, "Tanh", isa.probe->tanh, [](double x) { return std::tanh(x); }, 2);
    CheckFunction(
        isa, "Erf", isa.probe->erf, [](double x) { return std::erf(x); }, 2);
    CheckFunction(
        isa, "Sigmoid", isa.probe->sigmoid,
        [](double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); },
        3);
  }
}

TEST(SimdMath, SpecialValuesAndOddness) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {inf, -inf, 0.0f, -0.0f, std::nanf(""), -1.0f};
  for (const Isa& isa : AvailableProbes()) {
    std::vector<float> y(x.size());
    isa.probe->exp(x.data(), y.data(), 6);
    EXPECT_EQ(y[0], inf);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 1.0f);
    EXPECT_TRUE(std::isnan(y[4]));
    isa.probe->log(x.data(), y.data(), 6);
    EXPECT_EQ(y[0], inf);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], -inf);
    EXPECT_EQ(y[3], -inf);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_TRUE(std::isnan(y[5]));
    for (auto f : {isa.probe->tanh, isa.probe->erf}) {
      f(x.data(), y.data(), 6);
      EXPECT_EQ(y[0], 1.0f);
      EXPECT_EQ(y[1], -1.0f);
      EXPECT_EQ(y[2], 0.0f);
      EXPECT_TRUE(std::signbit(y[3]));
      EXPECT_TRUE(std::isnan(y[4]));
      std::vector<float> up, down;
      for (int i = 0; i < 1000; ++i) {
        up.push_back(static_cast<float>(i) * 0.0051f);
        down.push_back(-up.back());
      }
      std::vector<float> y_up(1000), y_down(1000);
      f(up.data(), y_up.data(), 1000);
      f(down.data(), y_down.data(), 1000);
      for (int i = 0; i < 1000; ++i) EXPECT_EQ(y_up[i], -y_down[i]);
    }
    isa.probe->sigmoid(x.data(), y.data(), 6);
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 0.5f);
    EXPECT_TRUE(std::isnan(y[4]));
  }
}

TEST(SimdMath, AnElementsBitsDoNotDependOnItsPlace) {
  std::vector<float> x(67);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.17f - 5.0f;
  for (const Isa& isa : AvailableProbes()) {
    for (auto f :
         {isa.probe->exp, isa.probe->log, isa.probe->tanh, isa.probe->erf, isa.probe->sigmoid}) {
      std::vector<float> whole(x.size());
      f(x.data(), whole.data(), static_cast<int64_t>(x.size()));
      for (size_t begin = 0; begin < x.size(); begin += 5) {
        std::vector<float> part(x.size() - begin + 1, 7.5f);
        const int64_t n = static_cast<int64_t>(x.size() - begin);
        f(x.data() + begin, part.data(), n);
        EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + begin, sizeof(float) * n));
        EXPECT_EQ(part.back(), 7.5f) << "wrote behind the tail";
      }
    }
  }
}

TEST(SimdHalf, EveryPatternAndRoundingAgreesWithTheScalarType) {
  std::vector<uint16_t> all(65536);
  for (int i = 0; i < 65536; ++i) all[i] = static_cast<uint16_t>(i);
  for (const Isa& isa : AvailableProbes()) {
    std::vector<float> wide(65536);
    isa.probe->from_bf16(all.data(), wide.data(), 65536);
    for (int i = 0; i < 65536; ++i) ASSERT_EQ(ToBits(wide[i]), static_cast<uint32_t>(i) << 16);
    isa.probe->from_f16(all.data(), wide.data(), 65536);
    for (int i = 0; i < 65536; ++i) {
      const int exponent = (i >> 10) & 31;
      const int mantissa = i & 1023;
      const double sign = i & 0x8000 ? -1 : 1;
      if (exponent == 31) {
        ASSERT_EQ(std::isnan(wide[i]), mantissa != 0);
        if (mantissa == 0) {
          ASSERT_EQ(wide[i], sign * INFINITY);
        }
        continue;
      }
      const double value =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(wide[i], static_cast<float>(sign * value)) << i;
    }
    // Narrowing: nearest of all finite halves, ties to the even pattern.
    const std::vector<float>& x = Samples();
    std::vector<uint16_t> narrow(x.size()), bf(x.size());
    isa.probe->to_f16(x.data(), narrow.data(), static_cast<int64_t>(x.size()));
    isa.probe->to_bf16(x.data(), bf.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_GT(narrow[i] & 0x7fff, 0x7c00) << isa.name;
        ASSERT_GT(bf[i] & 0x7fff, 0x7f80) << isa.name;
        continue;
      }
      const double a = std::abs(static_cast<double>(x[i]));
      double want;
      if (a >= 65520) {
        want = INFINITY;
      } else {
        const int e = std::max(a > 0 ? std::ilogb(a) : -14, -14);
        want = std::ldexp(std::nearbyint(std::ldexp(a, 10 - e)), e - 10);
      }
      float got;
      isa.probe->from_f16(&narrow[i], &got, 1);
      ASSERT_EQ(std::abs(got), want) << isa.name << " " << x[i];
      ASSERT_EQ(std::signbit(got), std::signbit(x[i]));
      ASSERT_EQ(bf[i], BFloat16(x[i]).bits) << isa.name << " " << x[i];
    }
  }
}

TEST(SimdLanes, ReductionsFoldHalves) {
  for (const Isa& isa : AvailableProbes()) {
    std::vector<float> x(isa.probe->lanes);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(3 * i + 1) - 0.2f;
    std::vector<float> fold = x;
    for (size_t half = x.size() / 2; half >= 1; half /= 2) {
      for (size_t i = 0; i < half; ++i) fold[i] = fold[i] + fold[i + half];
    }
    float r[3];
    isa.probe->reduce(x.data(), r);
    EXPECT_EQ(r[0], fold[0]);
    EXPECT_EQ(r[1], *std::max_element(x.begin(), x.end()));
    EXPECT_EQ(r[2], *std::min_element(x.begin(), x.end()));
  }
}

TEST(SimdRandom, EqualsTheScalarStream) {
  const RandomKey key = RandomKey::FromSeed(17).With("dropout");
  for (const Isa& isa : AvailableProbes()) {
    // The last two cross 2^32 blocks, where the counter carries.
    for (uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{1} << 33,
                           (uint64_t{1} << 34) - 5, (uint64_t{1} << 34) - 70}) {
      for (int64_t n : {1, 5, 64, 96}) {
        std::vector<uint32_t> bits(n);
        isa.probe->random(key.hi, key.lo, index, n, bits.data());
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(bits[i], RandomBits(key, index + i)) << isa.name << " " << index << " " << i;
        }
      }
    }
  }
}

TEST(SimdLanes, ComparisonsAndNan) {
  const float nan = std::nanf("");
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, -2.5f, INFINITY, -INFINITY, nan};
  std::vector<float> a, b;
  for (float u : values) {
    for (float v : values) {
      a.push_back(u);
      b.push_back(v);
    }
  }
  const size_t n = a.size();
  for (const Isa& isa : AvailableProbes()) {
    std::vector<int32_t> bits(n);
    std::vector<float> lo(n), hi(n), fused(n);
    isa.probe->compare(a.data(), b.data(), bits.data(), lo.data(), hi.data(), fused.data(),
                       static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      const int want = (a[i] < b[i] ? 1 : 0) | (a[i] <= b[i] ? 2 : 0) | (a[i] == b[i] ? 4 : 0) |
                       (a[i] > b[i] ? 8 : 0) | (a[i] >= b[i] ? 16 : 0) |
                       (std::isnan(a[i]) ? 32 : 0);
      EXPECT_EQ(bits[i], want) << isa.name << " " << a[i] << " " << b[i];
      const float want_lo = a[i] < b[i] ? a[i] : b[i];
      const float want_hi = a[i] > b[i] ? a[i] : b[i];
      EXPECT_EQ(std::isnan(lo[i]), std::isnan(want_lo));
      EXPECT_EQ(std::isnan(hi[i]), std::isnan(want_hi));
      if (!std::isnan(want_lo)) {
        EXPECT_EQ(lo[i], want_lo);
      }
      if (!std::isnan(want_hi)) {
        EXPECT_EQ(hi[i], want_hi);
      }
      const float want_fused = std::fma(a[i], b[i], a[i]);
      EXPECT_EQ(std::isnan(fused[i]), std::isnan(want_fused));
      if (!std::isnan(want_fused)) {
        EXPECT_EQ(fused[i], want_fused);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
