// SPDX-License-Identifier: Apache-2.0
#include "base/json_member.h"

#include <gtest/gtest.h>

#include <initializer_list>
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
  EXPECT_TRUE(JsonMember()->is_null());
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

TEST(JsonMemberTest, IsMadeOfAJsonValueAlone) {
  const nlohmann::json value = {{"lr", 0.5}, {"betas", {0.9, 0.95}}};
  JsonMember member = value;
  EXPECT_EQ(*member, value);
  EXPECT_EQ(member, value);
  member = nlohmann::json(7);
  EXPECT_EQ(*member, 7);
  const nlohmann::json back = *member;
  EXPECT_EQ(back, 7);
  // {{"lr", 0.5}} for a JsonMember would be the array ["lr", 0.5].
  static_assert(!std::is_convertible_v<std::vector<std::string>, JsonMember>);
  static_assert(!std::is_constructible_v<JsonMember, std::initializer_list<std::string>>);
  static_assert(!std::is_constructible_v<JsonMember, nlohmann::ordered_json>);
  static_assert(std::is_nothrow_move_constructible_v<JsonMember>);
}

}  // namespace
}  // namespace tessera
