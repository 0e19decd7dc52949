// SPDX-License-Identifier: Apache-2.0
#include "data/dataset/json_records.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "base/file.h"
#include "base/json_ordered.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

TEST(OrderedJsonTest, KeepsKeysInTheirOrder) {
  const auto dumped = [](std::string_view text) {
    const auto value = ParseOrderedJson(text, "text");
    return value.ok() ? value->dump() : Message(value.status());
  };
  EXPECT_EQ(dumped(R"({"b": 1, "a": [{"d": 1, "c": 2}], "": null})"),
            R"({"b":1,"a":[{"d":1,"c":2}],"":null})");
  // Of equal keys the last value, where the first stood: json.loads of Python.
  EXPECT_EQ(dumped(R"({"b": 1, "a": 2, "b": 3})"), R"({"b":3,"a":2})");
  EXPECT_EQ(dumped(R"({"b": 1, "a": 2, "b": 3, "a": {"x": 1, "x": 4}, "c": 5, "b": 6})"),
            R"({"b":6,"a":{"x":4},"c":5})");
  EXPECT_EQ(
      Message(ParseOrderedJson(R"({"b": {"a": 2, "c": 1, "a": 2}})", "text", {.unique_keys = true})
                  .status()),
      "text: 'b.a' is given twice, at line 1, column 8 and line 1, column 24; keep one of them");
}

TEST(OrderedJsonTest, KeepsIntegersBeyond64Bits) {
  const auto big = [](const char* text) {
    return std::string(BigInteger(*ParseOrderedJson(text, "text")));
  };
  EXPECT_EQ(big("18446744073709551616"), "18446744073709551616");
  EXPECT_EQ(big("-9223372036854775809"), "-9223372036854775809");
  EXPECT_EQ(big("18446744073709551615"), "");
  EXPECT_EQ(big("-9223372036854775808"), "");
  EXPECT_EQ(big("1.8446744073709551616e19"), "");
  EXPECT_EQ(big("\"18446744073709551616\""), "");
  EXPECT_EQ(*ParseOrderedJson("18446744073709551615", "text"), Json(UINT64_MAX));
}

// The time of a million keys, which would be hours where each is looked for among all before it.
TEST(OrderedJsonTest, ManyKeysTakeTheTimeOfSortingThem) {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += Concat(i == 0 ? "{\"" : ",\"", i % 900'000, "\":", i);
  const auto begin = std::chrono::steady_clock::now();
  const auto value = ParseOrderedJson(text + "}", "text");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->size(), 900'000u);
  EXPECT_EQ(value->begin().value(), 900'000);
}

TEST(JsonRecordsTest, LinesMayHoldWhatPythonWrites) {
  int records = 0;
  const std::string path = testing::TempDir() + "/lines";
  ASSERT_TRUE(WriteFileAtomically(path,
                                  "\xEF\xBB\xBF{\"score\": NaN}\n\n{\"score\": -Infinity}\r\n"
                                  "{\"score\": Infinity}")
                  .ok());
  const Status read = ForEachJsonRecord(path, [&](const Json& record, const std::string&) {
    EXPECT_FALSE(std::isfinite(record["score"].get<double>()));
    ++records;
    return OkStatus();
  });
  EXPECT_TRUE(read.ok()) << Message(read);
  EXPECT_EQ(records, 3);
}

// A .json file may be one object over several lines: a record. What is wrong with others is wrong
// at their first line.
TEST(JsonRecordsTest, AnObjectMayTakeSeveralLines) {
  const auto read = [](const std::string& name, const std::string& text) {
    const std::string path = testing::TempDir() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    std::string seen;
    const Status status = ForEachJsonRecord(path, [&](const Json& record, const std::string& at) {
      EXPECT_TRUE(at.starts_with(path)) << at;
      seen += record.dump() + at.substr(path.size()) + " ";
      return OkStatus();
    });
    return status.ok() ? seen : Message(status).substr(path.size());
  };
  EXPECT_EQ(read("whole.json", "\n{\n \"data\": [1,\n 2]\n}\n"), "{\"data\":[1,2]} ");
  EXPECT_EQ(read("lines.json", "{\"a\": 1}\n{\"a\": 2}\n"), "{\"a\":1}:1 {\"a\":2}:2 ");
  EXPECT_TRUE(read("two.json", "{\n\"a\": 1}\n{\n\"a\": 2}\n").starts_with(":1: not valid JSON"));
  EXPECT_TRUE(read("whole.jsonl", "{\n\"a\": 1}\n").starts_with(":1: not valid JSON"));
}

}  // namespace
}  // namespace tessera::data
