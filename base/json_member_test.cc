// SPDX-License-Identifier: Apache-2.0
#include "base/json_member.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace tessera {
namespace {

struct Row {
  OrderedJsonMember metrics = OrderedJsonMember::Object();
  JsonMember state = {};
};

TEST(JsonMemberTest, IsNullOrAnEmptyObjectAtFirst) {
  const Row row;
  EXPECT_EQ(row.metrics->dump(), "{}");
  EXPECT_TRUE(row.state->is_null());
  JsonMember state;
  state["step"] = 3;
  EXPECT_EQ(state->dump(), R"({"step":3})");
  state["at"] = {1, 2};
  const JsonMember list = state["at"];
  EXPECT_EQ(list[0], 1);
  EXPECT_EQ(std::as_const(state)["at"][1], 2);
  JsonMember first = list;
  first[0] = 5;
  EXPECT_EQ(first->dump(), "[5,2]");
  EXPECT_TRUE(JsonMember()->is_null());
  EXPECT_EQ(JsonMember::Array()->dump(), "[]");
}

TEST(JsonMemberTest, CopiesAreDeepAndMovesLeaveNull) {
  Row row;
  row.metrics["f1"] = 0.5;
  row.metrics["accuracy"] = 0.75;
  Row copy = row;
  EXPECT_EQ(copy.metrics, row.metrics);
  copy.metrics["f1"] = 0.25;
  EXPECT_EQ(row.metrics->at("f1"), 0.5);
  EXPECT_NE(copy.metrics, row.metrics);
  EXPECT_EQ(row.metrics->dump(), R"({"f1":0.5,"accuracy":0.75})");  // in the order of insertion

  const nlohmann::ordered_json* const held = &*row.metrics;
  Row moved = std::move(row);
  EXPECT_EQ(&*moved.metrics, held);
  EXPECT_TRUE(row.metrics->is_null());  // NOLINT(bugprone-use-after-move)
  row = moved;
  EXPECT_EQ(row.metrics, moved.metrics);
  row.metrics = row.metrics;
  EXPECT_EQ(row.metrics, moved.metrics);
}

TEST(JsonMemberTest, IsMadeOfWhatAJsonIsMadeOf) {
  const nlohmann::json value = {{"lr", 0.5}, {"betas", {0.9, 0.95}}};
  JsonMember member = value;
  EXPECT_EQ(*member, value);
  EXPECT_EQ(member, value);
  EXPECT_EQ(value, member);
  member = nlohmann::json(7);
  EXPECT_EQ(*member, 7);
  EXPECT_EQ(member, 7);
  const nlohmann::json back = member;
  EXPECT_EQ(back, 7);
  member = std::vector<std::string>{"yes", "no"};
  EXPECT_EQ(member->dump(), R"(["yes","no"])");

  for (const auto& [scalar, text] :
       std::vector<std::pair<JsonMember, std::string>>{{nullptr, "null"},
                                                       {true, "true"},
                                                       {-3, "-3"},
                                                       {0.5, "0.5"},
                                                       {"a", "\"a\""},
                                                       {int64_t{1} << 40, "1099511627776"},
                                                       {~uint64_t{0}, "18446744073709551615"},
                                                       {std::string("b"), "\"b\""},
                                                       {1.5f, "1.5"}}) {
    EXPECT_EQ(scalar->dump(), text);
  }
  static_assert(!std::is_constructible_v<JsonMember, std::pair<void*, Row>>);
  static_assert(std::is_nothrow_move_constructible_v<JsonMember>);
}

TEST(JsonMemberTest, WhatIsInBracesIsAnObjectOrAnArrayAsOfAJson) {
  struct Both {
    JsonMember member;
    nlohmann::json json;
  };
#define BOTH(...) \
  Both { .member = __VA_ARGS__, .json = __VA_ARGS__ }
  for (const Both& both :
       {BOTH({}), BOTH({{}}), BOTH({1}), BOTH({1, "a", 0.5}), BOTH({"a", 1}), BOTH({{"a", 1}}),
        BOTH({{"a", 1}, {"b", {1, 2}}}), BOTH({{"a", {{"b", nullptr}, {"c", true}}}}),
        BOTH({{"a", 1}, {"a", 2}}), BOTH({{"a", 1}, {2, "b"}}), BOTH({{"a", "b"}, "c"}),
        BOTH({{"a", std::vector<int64_t>{1, 2}}, {"b", nlohmann::json::object()}})}) {
    EXPECT_EQ(both.member->dump(), both.json.dump());
  }
#undef BOTH
  const OrderedJsonMember ordered = {{"b", 1}, {"a", 2}};
  EXPECT_EQ(ordered->dump(), R"({"b":1,"a":2})");
}

}  // namespace
}  // namespace tessera
