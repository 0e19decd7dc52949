// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/philox.h"
#include "core/thread_pool.h"

namespace tessera {
namespace {

void ExpectWords(const PhiloxWords& got, const std::array<uint32_t, 4>& want) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.v[i], want[i]) << "word " << i;
}

// Random123's kat_vectors, "philox4x32 10".
TEST(Philox, KnownAnswers) {
  ExpectWords(Philox4x32({{0, 0, 0, 0}}, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  ExpectWords(
      Philox4x32({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
      {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  ExpectWords(
      Philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
      {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(RandomKey, DependsOnEveryPart) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  int made = 0;
  const auto add = [&](const RandomKey& key) {
    keys.insert({key.hi, key.lo});
    ++made;
  };
  const std::string null_byte(1, '\0');
  for (const std::string& path :
       {std::string(), null_byte, null_byte + null_byte, std::string("a"), std::string("b"),
        std::string("ab"), std::string("transformer.h.0.attn"), std::string("transformer.h.1.attn"),
        std::string("transformer.h.10.attn")}) {
    for (uint64_t seed : {0ull, 1ull, 0xffffffffffffffffull}) {
      add(InitialisationKey(seed, path));
      for (uint64_t step : {0ull, 1ull, 2ull}) {
        for (uint64_t micro_batch : {0ull, 1ull, 2ull}) {
          add(NoiseKey(seed, path, step, micro_batch));
        }
      }
    }
  }
  add(RandomKey::FromSeed(0).With("ab").With("c"));
  add(RandomKey::FromSeed(0).With("a").With("bc"));
  add(RandomKey::FromSeed(0).With("abc"));
  EXPECT_EQ(static_cast<int>(keys.size()), made);
  EXPECT_EQ(NoiseKey(7, "x", 3, 1), RandomKey::FromSeed(7).With("x").With(3).With(1));
}

TEST(RandomKey, StaysTheSameForever) {
  // Checkpoints and golden losses depend on these.
  const RandomKey key = NoiseKey(1234, "transformer.h.0.attn", 5, 2);
  EXPECT_EQ(key.hi, 0x8c92f63e22c92b6dull);
  EXPECT_EQ(key.lo, 0xedcfd0dc5d9421a6ull);
}

TEST(RandomBits, ElementsAreWordsOfConsecutiveBlocks) {
  const RandomKey key{0x0123456789abcdefull, 0xfedcba9876543210ull};
  const uint64_t far = uint64_t{1} << 40;
  for (uint64_t index : {uint64_t{0}, uint64_t{5}, far + 3}) {
    const PhiloxWords block =
        Philox4x32({{static_cast<uint32_t>(index / 4), static_cast<uint32_t>(index / 4 >> 32),
                     0x89abcdef, 0x01234567}},
                   0x76543210, 0xfedcba98);
    EXPECT_EQ(RandomBits(key, index), block.v[index % 4]);
  }
}

TEST(Uniform, RangeAndMoments) {
  const RandomKey key = RandomKey::FromSeed(3);
  constexpr int kN = 200001;
  std::vector<float> values(kN);
  FillUniform(values.data(), kN, key, 0, {.low = -2.0, .high = 6.0});
  double sum = 0;
  double sum2 = 0;
  for (int i = 0; i < kN; ++i) {
    ASSERT_GE(values[i], -2.0f);
    ASSERT_LT(values[i], 6.0f);
    sum += values[i];
    sum2 += double{values[i]} * values[i];
  }
  const double mean = sum / kN;
  EXPECT_NEAR(mean, 2.0, 5 * 8 / std::sqrt(12.0 * kN));
  EXPECT_NEAR(sum2 / kN - mean * mean, 64.0 / 12, 0.1);
  for (int i = 0; i < 1000; ++i) {
    const double u = UniformDouble(key, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
  }
  // Two words are 53 bits, the first the lower ones.
  const PhiloxWords w = RandomBlock(key, 3);
  EXPECT_EQ(UniformDouble(key, 6), (w.v[1] + (w.v[0] >> 11) * 0x1p-21) * 0x1p-32);
  EXPECT_EQ(UniformDouble(key, 7), (w.v[3] + (w.v[2] >> 11) * 0x1p-21) * 0x1p-32);
  // One value in about 2^25 would round up to the end without care.
  float narrow = 0;
  for (uint64_t i = 0; i < 4096; ++i) {
    FillUniform(&narrow, 1, key, i, {.low = 16777216.0, .high = 16777218.0});
    ASSERT_LT(narrow, 16777218.0f);
  }
}

// Box and Muller with the library's functions in long double.
double ReferenceNormal(const RandomKey& key, uint64_t index) {
  const PhiloxWords w = RandomBlock(key, index / 4);
  const int pair = index % 4 / 2 * 2;
  const long double u1 = (static_cast<long double>(w.v[pair]) + 0.5L) / 4294967296.0L;
  const long double turn = 2.0L * std::numbers::pi_v<long double> *
                           static_cast<long double>(w.v[pair + 1]) / 4294967296.0L;
  const long double radius = std::sqrt(-2.0L * std::log(u1));
  return static_cast<double>(radius * (index % 2 == 0 ? std::cos(turn) : std::sin(turn)));
}

TEST(Normal, AgreesWithTheLibrarysFunctions) {
  const RandomKey key = RandomKey::FromSeed(11);
  for (uint64_t i = 0; i < 100000; ++i) {
    const double want = ReferenceNormal(key, i);
    ASSERT_NEAR(NormalDouble(key, i), want, 2e-15 * (1 + std::abs(want))) << "element " << i;
  }
}

TEST(Normal, MomentsAndTails) {
  constexpr int kN = 400000;
  std::vector<float> values(kN);
  FillNormal(values.data(), kN, RandomKey::FromSeed(5), 0, {.mean = 1.0, .stddev = 2.0});
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  int beyond_two = 0;
  for (float v : values) {
    const double z = (v - 1.0) / 2.0;
    m1 += z;
    m2 += z * z;
    m3 += z * z * z;
    m4 += z * z * z * z;
    beyond_two += std::abs(z) > 2.0;
  }
  EXPECT_NEAR(m1 / kN, 0.0, 0.01);
  EXPECT_NEAR(m2 / kN, 1.0, 0.015);
  EXPECT_NEAR(m3 / kN, 0.0, 0.03);
  EXPECT_NEAR(m4 / kN, 3.0, 0.08);
  EXPECT_NEAR(beyond_two / static_cast<double>(kN), 0.0455, 0.002);
}

TEST(Fill, AnyPartHasTheElementsOfTheWhole) {
  const RandomKey key = RandomKey::FromSeed(9);
  constexpr int kN = 20000;
  std::vector<float> normal(kN);
  FillNormal(normal.data(), kN, key, 0, {});
  for (int begin : {0, 1, 2, 3, 4, 4099}) {
    for (int n : {0, 1, 2, 3, 5, 9001}) {
      std::vector<float> part(n + 1, -77.0f);
      FillNormal(part.data(), n, key, begin, {});
      for (int i = 0; i < n; ++i) ASSERT_EQ(part[i], normal[begin + i]);
      EXPECT_EQ(part[n], -77.0f);
    }
  }
  for (int i = 0; i < kN; i += 37) {
    EXPECT_EQ(normal[i], static_cast<float>(NormalDouble(key, i)));
  }
}

TEST(Fill, BoxesHaveTheElementsOfTheWhole) {
  const RandomKey key = InitialisationKey(0, "w");
  const std::array<int64_t, 3> global = {5, 7, 6};
  std::vector<float> whole(5 * 7 * 6);
  FillUniform(whole.data(), 5 * 7 * 6, key, 0, {});
  const std::array<std::array<int64_t, 3>, 7> begins = {
      {{0, 0, 0}, {1, 2, 3}, {2, 0, 0}, {0, 3, 0}, {0, 0, 5}, {4, 6, 5}, {0, 2, 0}}};
  const std::array<std::array<int64_t, 3>, 7> sizes = {
      {{5, 7, 6}, {2, 3, 2}, {3, 7, 6}, {5, 4, 6}, {5, 7, 1}, {1, 1, 1}, {5, 0, 6}}};
  for (size_t b = 0; b < begins.size(); ++b) {
    const auto& begin = begins[b];
    const auto& size = sizes[b];
    std::vector<float> part(size[0] * size[1] * size[2]);
    FillUniformBox(part.data(), {.global = global, .begin = begin, .size = size}, key, {});
    size_t at = 0;
    for (int64_t i = 0; i < size[0]; ++i) {
      for (int64_t j = 0; j < size[1]; ++j) {
        for (int64_t k = 0; k < size[2]; ++k) {
          const int64_t index = ((begin[0] + i) * 7 + begin[1] + j) * 6 + begin[2] + k;
          ASSERT_EQ(part[at++], whole[index]) << "box " << b;
        }
      }
    }
  }
}

TEST(Fill, ScalarsAndBoxesOutside) {
  const RandomKey key = RandomKey::FromSeed(1);
  float scalar = -1;
  FillNormalBox(&scalar, {}, key, {});
  EXPECT_EQ(scalar, static_cast<float>(NormalDouble(key, 0)));
  const std::array<int64_t, 2> global = {4, 4};
  const auto fill = [&](const std::vector<int64_t>& begin, const std::vector<int64_t>& size) {
    std::vector<float> out(32);
    FillNormalBox(out.data(), {.global = global, .begin = begin, .size = size}, key, {});
  };
  EXPECT_NO_THROW(fill({0, 2}, {4, 2}));
  EXPECT_NO_THROW(fill({4, 0}, {0, 4}));
  EXPECT_THROW(fill({0, 3}, {4, 2}), Error);
  EXPECT_THROW(fill({-1, 0}, {2, 4}), Error);
  EXPECT_THROW(fill({0, 0}, {4, -1}), Error);
  EXPECT_THROW(fill({0, 0}, {5, 1}), Error);
  EXPECT_THROW(fill({0}, {4, 4}), Error);
  EXPECT_THROW(fill({0, 0}, {4}), Error);
}

TEST(Fill, SameBitsWithAnyNumberOfThreads) {
  const int threads = NumThreads();
  constexpr int kN = 50001;
  std::vector<float> one(kN);
  std::vector<float> three(kN);
  SetNumThreads(1);
  FillNormal(one.data(), kN, RandomKey::FromSeed(2), 7, {});
  SetNumThreads(3);
  FillNormal(three.data(), kN, RandomKey::FromSeed(2), 7, {});
  SetNumThreads(threads);
  EXPECT_EQ(one, three);
}

}  // namespace
}  // namespace tessera
