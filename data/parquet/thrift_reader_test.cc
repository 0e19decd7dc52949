// SPDX-License-Identifier: Apache-2.0
#include "data/parquet/thrift_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {
namespace {

using namespace std::string_view_literals;

// Field 1: -2 (i32); field 2: true; field 20: ["a", "bc"]; field 21: an empty struct.
constexpr std::string_view kBytes =
    "\x15\x03\x11\x09\x28\x28\x01"
    "a\x02"
    "bc\x1C\0\0"sv;

TEST(ThriftReaderTest, ReadsFields) {
  ThriftReader in(kBytes);
  int64_t number = 0;
  bool flag = false;
  std::vector<std::string> names;
  in.Struct([&](int id) {
    if (id == 1) return number = in.Int(), void();
    if (id == 2) return flag = in.Bool(), void();
    if (id == 20) return in.List([&] { names.emplace_back(in.Binary()); });
    in.Skip();
  });
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.position(), kBytes.size());
  EXPECT_EQ(number, -2);
  EXPECT_TRUE(flag);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "bc"}));
}

TEST(ThriftReaderTest, SkipsWhatNobodyAsksFor) {
  // A map of bytes to doubles, a set of truth values, an i64, then field 4: 5.
  const std::string bytes(
      "\x1B\x01\x37\x07\0\0\0\0\0\0\xF0\x3F\x1A\x21\x01\x02\x16\x80\x01\x15\x0A\0", 23);
  ThriftReader in(bytes);
  int64_t number = 0;
  in.Struct([&](int id) { id == 4 ? number = in.Int(), void() : in.Skip(); });
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(number, 5);
}

TEST(ThriftReaderTest, FailsForGood) {
  for (size_t size = 0; size < kBytes.size(); ++size) {
    ThriftReader in(kBytes.substr(0, size));
    in.Struct([&](int) { in.Skip(); });
    EXPECT_FALSE(in.ok()) << size;
  }
  ThriftReader text(kBytes);
  text.Struct([&](int) { text.Binary(); });
  EXPECT_FALSE(text.ok());
  // A list of more elements than there are bytes.
  ThriftReader list("\x19\xF5\xFF\xFF\xFF\x0F"sv);
  int elements = 0;
  list.Struct([&](int) { list.List([&] { ++elements; }); });
  EXPECT_FALSE(list.ok());
  EXPECT_EQ(elements, 0);
  const std::string deep(100'000, '\x1C');
  ThriftReader in(deep);
  in.Struct([&](int) { in.Skip(); });
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace tessera::data
