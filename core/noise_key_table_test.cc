// SPDX-License-Identifier: Apache-2.0
#include "core/noise_key_table.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

void ExpectStored(const RandomKey& key, const RandomKey& expected) {
  ASSERT_NE(key.stored, nullptr);
  EXPECT_EQ(key.stored[0], expected.hi);
  EXPECT_EQ(key.stored[1], expected.lo);
}

TEST(NoiseKeyTableTest, HasTheKeysOfTheStepThatIsWritten) {
  NoiseKeyTable table(Device::Cpu(), 3);
  table.Write(0);  // none yet
  RandomKey first, second, third, again;
  {
    const NoiseKeyTable::Scope recording(&table);
    first = NoiseKey(7, "h.0.dropout", 5, 0);
    second = NoiseKey(7, "h.0.dropout", 5, 1);
    third = NoiseKey(8, "h.1.dropout", 5, 0);
    again = NoiseKey(7, "h.0.dropout", 6, 1);
    EXPECT_THROW(NoiseKey(9, "h.0.dropout", 5, 0), Error);  // the table is full
  }
  EXPECT_EQ(again.stored, second.stored);
  for (const uint64_t step : {0, 3, 1000}) {
    table.Write(step);
    ExpectStored(first, NoiseKey(7, "h.0.dropout", step, 0));
    ExpectStored(second, NoiseKey(7, "h.0.dropout", step, 1));
    ExpectStored(third, NoiseKey(8, "h.1.dropout", step, 0));
  }
  EXPECT_EQ(NoiseKey(7, "h.0.dropout", 0, 0).stored, nullptr);
}

}  // namespace
}  // namespace tessera
