// SPDX-License-Identifier: Apache-2.0
#include "data/columns/column_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

ColumnTypePtr Shared(ColumnType type) {
  return std::make_shared<const ColumnType>(std::move(type));
}

template <typename T>
Column Fixed(ColumnType type, const std::vector<T>& values) {
  Column column;
  column.type = Shared(std::move(type));
  column.length = std::ssize(values);
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  column.SetValues(std::move(bytes));
  return column;
}

Column Strings(TypeKind kind, std::vector<std::string_view> values) {
  Column column;
  column.type = Shared(PlainType(kind));
  column.length = std::ssize(values);
  column.SetStrings(std::move(values));
  return column;
}

// A list or map with one row, which has every element.
Column OneList(TypeKind kind, std::vector<Column> children) {
  ColumnType type = {.kind = kind, .zone = {}};
  for (const Column& child : children) type.children.push_back({"item", child.type});
  Column column;
  column.type = Shared(std::move(type));
  column.length = 1;
  column.SetOffsets({0, children[0].length});
  column.children = std::move(children);
  return column;
}

Column Struct(const std::vector<std::string>& names, std::vector<Column> children) {
  ColumnType type = {.kind = TypeKind::kStruct, .zone = {}};
  for (size_t i = 0; i < names.size(); ++i) type.children.push_back({names[i], children[i].type});
  Column column;
  column.type = Shared(std::move(type));
  column.length = children[0].length;
  column.children = std::move(children);
  return column;
}

ColumnType Of(TypeKind kind, int byte_width, TimeUnit unit, const std::string& zone = "") {
  return {.kind = kind, .byte_width = byte_width, .unit = unit, .zone = zone};
}

ColumnType Decimal(int byte_width, int scale) {
  return {.kind = TypeKind::kDecimal,
          .byte_width = byte_width,
          .precision = 38,
          .scale = scale,
          .zone = {}};
}

// The text of each row. JsonOf must give what parsing that text gives.
std::vector<std::string> Texts(const Column& column) {
  std::vector<std::string> texts;
  for (int64_t row = 0; row < column.length; ++row) {
    std::string text;
    AppendJson(column, row, &text);
    const auto parsed = nlohmann::ordered_json::parse(text, nullptr, false);
    if (!parsed.is_discarded()) {
      EXPECT_EQ(JsonOf(column, row), parsed) << text;
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

using Expected = std::vector<std::string>;

TEST(ColumnJsonTest, WritesIntegersOfEveryWidth) {
  EXPECT_EQ(Texts(Fixed<int8_t>(PlainType(TypeKind::kInt8), {-128, 127})),
            (Expected{"-128", "127"}));
  EXPECT_EQ(Texts(Fixed<uint16_t>(PlainType(TypeKind::kUInt16), {65535})), Expected{"65535"});
  EXPECT_EQ(Texts(Fixed<int64_t>(PlainType(TypeKind::kInt64),
                                 {std::numeric_limits<int64_t>::min(), 9007199254740993})),
            (Expected{"-9223372036854775808", "9007199254740993"}));
  EXPECT_EQ(Texts(Fixed<uint64_t>(PlainType(TypeKind::kUInt64), {~uint64_t{0}})),
            Expected{"18446744073709551615"});
  EXPECT_EQ(Texts(Fixed<uint8_t>(PlainType(TypeKind::kBool), {0, 1})), (Expected{"false", "true"}));
}

TEST(ColumnJsonTest, WritesFloatsInTheShortestSpellingOfTheirType) {
  EXPECT_EQ(Texts(Fixed<float>(PlainType(TypeKind::kFloat32), {0.1F, 1.0F, 16777216.0F, 1e30F})),
            (Expected{"0.1", "1.0", "16777216.0", "1e+30"}));
  EXPECT_EQ(Texts(Fixed<double>(PlainType(TypeKind::kFloat64), {0.1, -0.0, 0.1F, 5e-324})),
            (Expected{"0.1", "-0.0", "0.10000000149011612", "5e-324"}));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Texts(Fixed<double>(PlainType(TypeKind::kFloat64), {infinity, -infinity, NAN})),
            (Expected{"Infinity", "-Infinity", "NaN"}));
  // One third, the smallest, the largest; what lies between it and infinity.
  EXPECT_EQ(Texts(Fixed<uint16_t>(PlainType(TypeKind::kFloat16),
                                  {0x2E66, 0x3555, 0x0001, 0x7BFF, 0xFC00, 0x8000})),
            (Expected{"0.1", "0.3333", "6e-08", "65500.0", "-Infinity", "-0.0"}));
}

TEST(ColumnJsonTest, EscapesStrings) {
  EXPECT_EQ(Texts(Strings(TypeKind::kString, {"a\"\\/\n\t\x01\x1F é", ""})),
            (Expected{R"("a\"\\/\n\t\u0001\u001f é")", R"("")"}));
  EXPECT_EQ(Texts(Strings(TypeKind::kBinary, {std::string_view("\0\xFF", 2), ""})),
            (Expected{R"("AP8=")", R"("")"}));
}

TEST(ColumnJsonTest, WritesDecimalsDigitForDigit) {
  EXPECT_EQ(Texts(Fixed<int32_t>(Decimal(4, 2), {-1250, 1, 0, -5})),
            (Expected{R"("-12.50")", R"("0.01")", R"("0.00")", R"("-0.05")"}));
  EXPECT_EQ(Texts(Fixed<int64_t>(Decimal(8, 0), {std::numeric_limits<int64_t>::min(), 7})),
            (Expected{R"("-9223372036854775808")", R"("7")"}));
  EXPECT_EQ(Texts(Fixed<int32_t>(Decimal(4, -2), {12, 0})), (Expected{R"("1200")", R"("0")"}));
  __extension__ using Wide = __int128;
  const Wide large = static_cast<Wide>(1'000'000'000'000'000'000) * 1'000'000'000'000;
  EXPECT_EQ(Texts(Fixed<Wide>(Decimal(16, 3), {large, -large})),
            (Expected{R"("1000000000000000000000000000.000")",
                      R"("-1000000000000000000000000000.000")"}));
}

TEST(ColumnJsonTest, WritesTimesAsIso8601) {
  EXPECT_EQ(Texts(Fixed<int32_t>(PlainType(TypeKind::kDate), {0, -1, 19782, -719528, 2932897})),
            (Expected{R"("1970-01-01")", R"("1969-12-31")", R"("2024-02-29")", R"("0000-01-01")",
                      R"("+10000-01-01")"}));
  EXPECT_EQ(Texts(Fixed<int32_t>(Of(TypeKind::kTime, 4, TimeUnit::kMillisecond), {86399125, 0})),
            (Expected{R"("23:59:59.125")", R"("00:00:00")"}));
  EXPECT_EQ(Texts(Fixed<int64_t>(Of(TypeKind::kTimestamp, 8, TimeUnit::kMicrosecond, "UTC"),
                                 {1, -1, 1709210462000000})),
            (Expected{R"("1970-01-01T00:00:00.000001Z")", R"("1969-12-31T23:59:59.999999Z")",
                      R"("2024-02-29T12:41:02Z")"}));
  EXPECT_EQ(Texts(Fixed<int64_t>(Of(TypeKind::kTimestamp, 8, TimeUnit::kNanosecond),
                                 {std::numeric_limits<int64_t>::min()})),
            Expected{R"("1677-09-21T00:12:43.145224192")"});
  EXPECT_EQ(Texts(Fixed<int64_t>(Of(TypeKind::kDuration, 8, TimeUnit::kSecond), {-5})),
            Expected{"-5"});
}

TEST(ColumnJsonTest, WritesUuids) {
  Column column =
      Fixed<uint64_t>(PlainType(TypeKind::kUuid), {0x7766554433221100, 0xFFEEDDCCBBAA9988});
  column.length = 1;
  EXPECT_EQ(Texts(column), Expected{R"("00112233-4455-6677-8899-aabbccddeeff")"});
}

TEST(ColumnJsonTest, WritesNestedRows) {
  Column role = Strings(TypeKind::kString, {"user", ""});
  role.SetValid({1, 0});
  const Column turn =
      Struct({"role", "n"}, {role, Fixed<int32_t>(PlainType(TypeKind::kInt32), {1, 2})});
  EXPECT_EQ(Texts(OneList(TypeKind::kList, {turn})),
            Expected{R"([{"role": "user", "n": 1}, {"role": null, "n": 2}])"});
  EXPECT_EQ(Texts(OneList(TypeKind::kMap, {Strings(TypeKind::kString, {"a", "b"}), role})),
            Expected{R"([["a", "user"], ["b", null]])"});
  Column none = OneList(TypeKind::kList, {turn});
  none.SetValid({0});
  EXPECT_EQ(Texts(none), Expected{"null"});
}

TEST(ColumnTest, TakesAndConcatenatesRows) {
  Column numbers = Fixed<int32_t>(PlainType(TypeKind::kInt32), {1, 2, 3});
  numbers.SetValid({1, 0, 1});
  const Column lists = OneList(TypeKind::kList, {numbers});
  const std::vector<int64_t> rows = {2, -1, 0, 1};
  EXPECT_EQ(Texts(TakeRows(numbers, rows).value()), (Expected{"3", "null", "1", "null"}));
  EXPECT_EQ(Texts(TakeRows(lists, std::vector<int64_t>{0, -1, 0}).value()),
            (Expected{"[1, null, 3]", "null", "[1, null, 3]"}));
  const Column other = OneList(TypeKind::kList, {Fixed<int32_t>(PlainType(TypeKind::kInt32), {7})});
  EXPECT_EQ(Texts(Concatenated(lists, other).value()), (Expected{"[1, null, 3]", "[7]"}));
  EXPECT_EQ(Texts(Concatenated(Strings(TypeKind::kString, {"a"}), Strings(TypeKind::kString, {"b"}))
                      .value()),
            (Expected{R"("a")", R"("b")"}));
}

TEST(ColumnTest, RefusesToRepeatLargeRowsForever) {
  // A list of a thousand elements, and a value of 8 KB.
  const Column list = OneList(
      TypeKind::kList, {Fixed<uint8_t>(PlainType(TypeKind::kBool), std::vector<uint8_t>(1000))});
  Column wide = Fixed<uint8_t>({.kind = TypeKind::kFixedBinary, .byte_width = 8192, .zone = {}},
                               std::vector<uint8_t>(8192));
  wide.length = 1;
  const std::vector<int64_t> rows(300'000);
  EXPECT_EQ(TakeRows(list, rows).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TakeRows(wide, rows).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(TakeRows(list, std::span(rows).first(1000)).ok());
}

TEST(ColumnTypeTest, HasPyarrowsTexts) {
  const auto text = Shared(PlainType(TypeKind::kString));
  const ColumnType turn = {.kind = TypeKind::kStruct,
                           .zone = {},
                           .children = {{"role", text}, {"n", Shared(PlainType(TypeKind::kInt8))}}};
  const ColumnType list = {.kind = TypeKind::kList, .zone = {}, .children = {{"", Shared(turn)}}};
  const ColumnType map = {
      .kind = TypeKind::kMap, .zone = {}, .children = {{"key", text}, {"value", text}}};
  EXPECT_EQ(TypeText(list), "list<struct<role: string, n: int8>>");
  EXPECT_EQ(TypeText(map), "map<string, string>");
  EXPECT_EQ(TypeText(Of(TypeKind::kTimestamp, 8, TimeUnit::kMicrosecond, "UTC")),
            "timestamp[us, tz=UTC]");
  EXPECT_EQ(TypeText(Of(TypeKind::kTime, 4, TimeUnit::kMillisecond)), "time32[ms]");
  EXPECT_EQ(TypeText(Decimal(16, 2)), "decimal(38, 2)");
  EXPECT_EQ(FieldsText({{"a", text}, {"b", Shared(map)}}), "a: string, b: map<string, string>");
}

}  // namespace
}  // namespace tessera::data
