// SPDX-License-Identifier: Apache-2.0
// Links beside groups of real ranks, which are threads.
#include "train/plan/links.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/tensor.h"
#include "core/thread_communicator.h"

namespace tessera::train {
namespace {

using dist::CommCall;
using dist::CommKind;

// The members say themselves who they are.
TEST(LinksTest, MembersOfGroupsAreThoseOfTheMesh) {
  for (const dist::MeshSizes& sizes : {dist::MeshSizes{.tp = 2, .pp = 2, .ep = 2, .cp = 2},
                                       dist::MeshSizes{.tp = 1, .pp = 2, .ep = 4, .cp = 1},
                                       dist::MeshSizes{.tp = 2, .pp = 1, .ep = 1, .cp = 4}}) {
    RunRanks(16, [&](const dist::Group& world) {
      const dist::Mesh mesh(world, sizes);
      for (const dist::Group& group : {mesh.world(), mesh.tp(), mesh.dp(), mesh.pp(), mesh.model(),
                                       mesh.ep(), mesh.edp(), mesh.cp()}) {
        const Tensor members = Empty({group->size()}, DType::kInt64);
        group->AllGather(members, Tensor::FromVector<int64_t>({world->rank()}, {1}))->Wait();
        for (int m = 0; m < group->size(); ++m) {
          EXPECT_EQ(WorldRankOf(mesh, group->name(), m), members.data<int64_t>()[m])
              << group->name() << " of rank " << world->rank();
        }
      }
    });
  }
}

// Rank 5 of 8 has pp 1, dp 0 and tp 1: rank = (pp * 2 + dp) * 2 + tp.
TEST(LinksTest, RingsMessagesAndChunks) {
  const dist::Mesh mesh({.tp = 2, .pp = 2}, 8, 5, dist::LoneRankCommunicator);
  SentBytes sent;
  const auto add = [&](CommCall call) { AddCall(call, mesh, &sent); };
  add({.kind = CommKind::kAllReduce, .group = "tp", .ranks = 2, .sent = 100});
  add({.kind = CommKind::kAllReduce, .group = "tp", .ranks = 2, .sent = 10});
  add({.kind = CommKind::kAllGather, .group = "dp", .ranks = 2, .sent = 7});
  add({.kind = CommKind::kSend, .group = "pp", .ranks = 2, .peer = 0, .sent = 3});
  add({.kind = CommKind::kReceive, .group = "pp", .ranks = 2, .peer = 0, .received = 3});
  add({.kind = CommKind::kAllToAll, .group = "dp", .ranks = 2, .sent = 20, .sent_to = {0, 20}});
  add({.kind = CommKind::kBroadcast, .group = "world", .ranks = 8, .peer = 0, .sent = 1});
  add({.kind = CommKind::kBarrier, .group = "world", .ranks = 8});
  EXPECT_EQ(LinksOf(sent, mesh), (std::map<int, int64_t>{{4, 110}, {7, 27}, {1, 3}, {6, 1}}));
  EXPECT_THROW(add({.kind = CommKind::kSend, .group = "half", .ranks = 2, .sent = 1}), Error);
}

// What a rank does goes for one elsewhere that does the same.
TEST(LinksTest, DistancesHoldForOtherRanks) {
  const dist::MeshSizes sizes = {.tp = 2, .pp = 1};
  const dist::Mesh one(sizes, 8, 0, dist::LoneRankCommunicator);
  const dist::Mesh last(sizes, 8, 7, dist::LoneRankCommunicator);
  SentBytes sent;
  AddCall({.kind = CommKind::kReduceScatter, .group = "dp", .ranks = 4, .sent = 5}, one, &sent);
  AddCall({.kind = CommKind::kAllReduce, .group = "tp", .ranks = 2, .sent = 9}, one, &sent);
  EXPECT_EQ(LinksOf(sent, one), (std::map<int, int64_t>{{2, 5}, {1, 9}}));
  EXPECT_EQ(LinksOf(sent, last), (std::map<int, int64_t>{{1, 5}, {6, 9}}));
}

}  // namespace
}  // namespace tessera::train
