// SPDX-License-Identifier: Apache-2.0
// The examples of Encodings.md of github.com/apache/parquet-format, and what is damaged.
#include "data/parquet/bit_readers.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {
namespace {

using namespace std::string_view_literals;

// `count` values, or nothing where there are fewer.
template <typename Reader>
std::vector<int> Levels(Reader reader, int64_t count) {
  std::vector<uint8_t> values(static_cast<size_t>(count));
  if (!reader.Read(values.data(), count)) return {};
  return {values.begin(), values.end()};
}

TEST(RunReaderTest, ReadsRunsAndGroups) {
  // 0 to 7 of three bits: the specification's example, as one group.
  EXPECT_EQ(Levels(RunReader("\x03\x88\xC6\xFA"sv, 3), 8),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  // Four times 5, then the group.
  EXPECT_EQ(Levels(RunReader("\x08\x05\x03\x88\xC6\xFA"sv, 3), 6),
            (std::vector<int>{5, 5, 5, 5, 0, 1}));
  EXPECT_EQ(Levels(RunReader(""sv, 0), 3), (std::vector<int>{0, 0, 0}));
}

TEST(RunReaderTest, EndsWhereTheBytesEnd) {
  EXPECT_EQ(Levels(RunReader("\x08\x05"sv, 3), 5), std::vector<int>{});
  EXPECT_EQ(Levels(RunReader("\x08"sv, 3), 1), std::vector<int>{});
  EXPECT_EQ(Levels(RunReader("\x03\x88"sv, 3), 8), std::vector<int>{});
  EXPECT_EQ(Levels(RunReader("\x03\x88"sv, 3), 2), (std::vector<int>{0, 1}));
  // A value of more bits than there are.
  EXPECT_EQ(Levels(RunReader("\x08\x09"sv, 3), 1), std::vector<int>{});
  EXPECT_EQ(Levels(RunReader("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"sv, 3), 1), std::vector<int>{});
}

TEST(PackedLevelReaderTest, ReadsTheHighestBitFirst) {
  EXPECT_EQ(Levels(PackedLevelReader("\x05\x39\x77"sv, 3), 8),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(PackedLevelReader::Size(8, 3), 3);
  EXPECT_EQ(Levels(PackedLevelReader("\x05\x39\x77"sv, 3), 9), std::vector<int>{});
}

// Blocks of 128 values in 4 miniblocks, five values from 7 with this block behind them.
std::string Deltas(std::string_view block) {
  return std::string("\x80\x01\x04\x05\x0E"sv) + std::string(block);
}

TEST(DeltaReaderTest, ReadsTheExamples) {
  // 7, 5, 3, 1, 2: differences -2, -2, -2, 1, of which the least is -2.
  const std::string bytes = Deltas("\x03\x02\0\0\0\xC0\0\0\0\0\0\0\0rest"sv);
  DeltaReader reader;
  ASSERT_TRUE(reader.Open(bytes));
  EXPECT_EQ(reader.count(), 5U);
  size_t end = 0;
  ASSERT_TRUE(DeltaReader(reader).FindEnd(&end));
  EXPECT_EQ(bytes.substr(end), "rest");
  std::vector<int64_t> values(5);
  ASSERT_TRUE(reader.Read(values.data(), 2));
  ASSERT_TRUE(reader.Read(values.data() + 2, 3));
  EXPECT_EQ(values, (std::vector<int64_t>{7, 5, 3, 1, 2}));
  EXPECT_FALSE(reader.Read(values.data(), 1));
}

TEST(DeltaReaderTest, RefusesWhatIsDamaged) {
  std::vector<int64_t> values(5);
  size_t end = 0;
  for (const std::string& bytes :
       {Deltas(""), Deltas("\x03\x02\0\0\0\xC0"sv), Deltas("\x03\x41\0\0\0\xC0\0\0\0\0\0\0\0"sv)}) {
    DeltaReader reader;
    ASSERT_TRUE(reader.Open(bytes));
    EXPECT_FALSE(DeltaReader(reader).FindEnd(&end));
    EXPECT_FALSE(reader.Read(values.data(), 5));
  }
  DeltaReader reader;
  EXPECT_FALSE(reader.Open(""sv));
  EXPECT_FALSE(reader.Open("\x80\x01\0\x05\x0E"sv));
  EXPECT_FALSE(reader.Open("\x80\x01\x03\x05\x0E"sv));
}

TEST(BitsAtTest, ReadsUpToSixtyFourBits) {
  const std::string bytes("\xF0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x0A", 9);
  EXPECT_EQ(BitsAt(bytes, 4, 64), 0xAFFFFFFFFFFFFFFFU);
  EXPECT_EQ(BitsAt(bytes, 64, 8), 0x0AU);
  EXPECT_EQ(BitsAt(bytes, 3, 1), 0U);
}

}  // namespace
}  // namespace tessera::data
