// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/rank_state.h"

#include <gtest/gtest.h>

namespace tessera::dist {
namespace {

// A rank whose main thread (1) waits in collective `number` of a group of all `size` ranks.
RankState WaitingIn(const std::string& group, int64_t number, int size, uint64_t thread = 1) {
  RankState state;
  state.main_thread = 1;
  state.groups[group] = {number, thread, "last of " + group};
  WaitState wait{group, number, "call " + std::to_string(number) + " of " + group, thread, 3, {}};
  for (int r = 0; r < size; ++r) wait.members.push_back(r);
  state.waits.push_back(wait);
  return state;
}

RankState Computing() {
  RankState state;
  state.main_thread = 1;
  return state;
}

TEST(RankStateTest, SurvivesEncoding) {
  RankState state = WaitingIn("a", 7, 3);
  state.has_ended = true;
  const auto copy = DecodeState(EncodeState(state));
  ASSERT_TRUE(copy.has_value());
  EXPECT_TRUE(copy->has_ended);
  EXPECT_EQ(copy->groups.at("a").calls, 7);
  EXPECT_EQ(copy->waits.at(0).members, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(copy->waits.at(0).text, "call 7 of a");
  EXPECT_FALSE(DecodeState("{\"half\":").has_value());
  EXPECT_FALSE(DecodeState("").has_value());
}

TEST(RankStateTest, MissingAreThoseWithFewerCallsOrNoAnswer) {
  const Snapshot snapshot = {WaitingIn("a", 7, 4), WaitingIn("a", 8, 4), WaitingIn("a", 6, 4),
                             std::nullopt};
  EXPECT_EQ(MissingRanks(snapshot[0]->waits[0], 0, snapshot), (std::vector<int>{2, 3}));
}

TEST(RankStateTest, ACircleOverThreeGroupsNamesTheFewest) {
  // 0 and 1 are in a, which 2 has not called; 2 is in b, which 0 and 1 have not called.
  Snapshot snapshot = {WaitingIn("a", 1, 3), WaitingIn("a", 1, 3), WaitingIn("b", 1, 3)};
  const auto finding = FindCircle(0, snapshot);
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->line,
            "ranks wait for each other: rank 2 is in call 1 of b, but ranks 0 and 1 are in call 1 "
            "of a");
  EXPECT_EQ(finding->observers, (std::vector<int>{0, 1, 2}));
}

TEST(RankStateTest, WaitingForSomeoneWhoComputesIsNoCircle) {
  // 0 waits for 1 in a; 1 waits for 2 in b; 2 computes and will come.
  Snapshot snapshot = {WaitingIn("a", 1, 2), WaitingIn("b", 1, 3), Computing()};
  snapshot[1]->waits[0].members = {1, 2};
  EXPECT_FALSE(FindCircle(0, snapshot).has_value());
  EXPECT_FALSE(FindCircle(1, snapshot).has_value());
  snapshot[2] = std::nullopt;
  EXPECT_FALSE(FindCircle(0, snapshot).has_value());
}

TEST(RankStateTest, AnotherThreadMayStillCall) {
  // Rank 1's thread 2 uses group a and is free, though its main thread waits in b for rank 0.
  Snapshot snapshot = {WaitingIn("a", 4, 2), WaitingIn("b", 1, 2)};
  snapshot[1]->groups["a"] = {3, 2, "last"};
  EXPECT_FALSE(FindCircle(0, snapshot).has_value());
  snapshot[1]->groups["a"].thread = 1;
  EXPECT_TRUE(FindCircle(0, snapshot).has_value());
}

TEST(RankStateTest, AnEndedRankIsNamedOnlyByThoseWhoNeedIt) {
  Snapshot snapshot = {WaitingIn("a", 2, 2), Computing(), Computing()};
  snapshot[1]->has_ended = true;
  snapshot[1]->groups["a"] = {1, 1, "first"};
  EXPECT_TRUE(FindEndedRank(0, snapshot).has_value());
  EXPECT_FALSE(FindEndedRank(2, snapshot).has_value());
  snapshot[1]->groups["a"].calls = 2;  // it has done its part
  EXPECT_FALSE(FindEndedRank(0, snapshot).has_value());
}

TEST(RankStateTest, TheMinorityIsNamedFirst) {
  EXPECT_EQ(DescribeMismatch("tp", {4, 5, 6, 7}, {"x", "x", "y", "x"}),
            "collectives differ in group tp: rank 6 calls y, but ranks 4, 5 and 7 call x");
  EXPECT_EQ(DescribeMismatch("tp", {0, 1, 2}, {"x", "y", "z"}),
            "collectives differ in group tp: rank 0 calls x; rank 1 calls y, but rank 2 calls z");
}

TEST(RankStateTest, ATimeoutTellsWhereTheMissingAre) {
  Snapshot snapshot = {WaitingIn("a", 2, 4), WaitingIn("b", 9, 4), std::nullopt, Computing()};
  const Finding finding = DescribeTimeout(snapshot[0]->waits[0], 0, 600, snapshot);
  EXPECT_EQ(
      finding.line,
      "the limit of 600 s for a collective has passed: rank 0 is in call 2 of a; missing is "
      "rank 1, which waits in call 9 of b; missing is rank 2, which does not answer (stopped, "
      "or dead); missing is rank 3, which computes; its last call in this group was none");
  EXPECT_EQ(finding.observers, std::vector<int>{0});
}

}  // namespace
}  // namespace tessera::dist
