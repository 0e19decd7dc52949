// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/drop_bits.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace tessera {
namespace {

TEST(KeptBits16, AreThoseOfTheDefinition) {
  const RandomKey key = RandomKey::FromSeed(11).With("attention").With(3);
  for (const float p : {0.1f, 0.5f, 0.937f}) {
    for (const uint64_t begin :
         {uint64_t{0}, uint64_t{16}, (uint64_t{1} << 34) - 8, (uint64_t{1} << 40) + 4}) {
      for (uint64_t skip = 0; skip < 4; ++skip) {
        const uint32_t bits = KeptBits16(key.hi, key.lo, begin + skip, p * 16777216.0f);
        for (uint64_t k = 0; k < 16; ++k) {
          const bool kept = !(UniformFloat(key, begin + skip + k) < p);
          EXPECT_EQ((bits >> k & 1) != 0, kept) << "p " << p << " element " << begin + skip + k;
        }
        EXPECT_EQ(bits >> 16, 0u);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
