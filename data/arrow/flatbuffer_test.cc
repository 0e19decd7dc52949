// SPDX-License-Identifier: Apache-2.0
#include "data/arrow/flatbuffer.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tessera::data {
namespace {

using namespace std::string_view_literals;

// A table with 7 (int32) as field 0, nothing as field 1, "hi" as field 2 and itself as field 3.
constexpr std::string_view kBytes =
    "\x10\0\0\0"                          // 0: the root is at 16
    "\x0C\0\x10\0\x04\0\0\0\x08\0\x0C\0"  // 4: the list: sizes, then places 4, -, 8, 12
    "\x0C\0\0\0"                          // 16: the list is 12 before
    "\x07\0\0\0"                          // 20
    "\x08\0\0\0"                          // 24: the text is at 32
    "\xF4\xFF\xFF\xFF"                    // 28
    "\x02\0\0\0hi\0\0"sv;                 // 32

TEST(FlatBufferTest, ReadsFields) {
  FlatBuffer buffer(kBytes);
  const FlatTable table = buffer.Root();
  EXPECT_EQ(table.Int<int32_t>(0, 3), 7);
  EXPECT_EQ(table.Int<int32_t>(1, 3), 3);
  EXPECT_EQ(table.Int<int32_t>(9, 3), 3);
  EXPECT_EQ(table.String(2), "hi");
  EXPECT_FALSE(table.Table(1).present());
  EXPECT_EQ(table.Table(1).Int<int32_t>(0, 5), 5);
  EXPECT_EQ(table.Vector(1, 8).size(), 0U);
  EXPECT_TRUE(buffer.ok());
}

TEST(FlatBufferTest, FailsForWhatLiesOutside) {
  FlatBuffer backwards(kBytes);
  // Offsets have no sign: this one leads far behind the end.
  EXPECT_FALSE(backwards.Root().Table(3).present());
  EXPECT_FALSE(backwards.ok());
  FlatBuffer large(kBytes);
  EXPECT_EQ(large.Root().Vector(2, 1000).size(), 0U);
  EXPECT_FALSE(large.ok());
  for (size_t size = 0; size + 2 < kBytes.size(); ++size) {
    FlatBuffer buffer(kBytes.substr(0, size));
    const FlatTable table = buffer.Root();
    table.Int<int32_t>(0, 0);
    table.String(2);
    EXPECT_FALSE(buffer.ok()) << size;
  }
}

}  // namespace
}  // namespace tessera::data
