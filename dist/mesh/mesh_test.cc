// SPDX-License-Identifier: Apache-2.0
#include "dist/mesh/mesh.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "core/tensor.h"
#include "core/thread_communicator.h"
#include "dist/comm/counting_communicator.h"
#include "dist/mesh/unshard.h"

namespace tessera::dist {
namespace {

// The world's ranks of a group, as the group itself tells them.
std::vector<int64_t> Members(const Group& group, int world_rank) {
  const Tensor mine = Tensor::FromVector<int64_t>({world_rank}, {1});
  const Tensor all = Empty({group->size()}, DType::kInt64);
  group->AllGather(all, mine)->Wait();
  return all.ToVector<int64_t>();
}

TEST(MeshTest, RankOrderIsTpThenDpThenPp) {
  RunRanks(12, [](const std::shared_ptr<Communicator>& world) {
    const Mesh mesh(world, {.tp = 2, .pp = 3});
    const int rank = world->rank();
    const int tp = rank % 2;
    const int dp = rank / 2 % 2;
    const int pp = rank / 4;
    EXPECT_EQ(mesh.tp()->rank(), tp);
    EXPECT_EQ(mesh.dp()->rank(), dp);
    EXPECT_EQ(mesh.pp()->rank(), pp);
    using V = std::vector<int64_t>;
    EXPECT_EQ(Members(mesh.tp(), rank), (V{rank - tp, rank - tp + 1}));
    EXPECT_EQ(Members(mesh.dp(), rank), (V{4 * pp + tp, 4 * pp + 2 + tp}));
    EXPECT_EQ(Members(mesh.pp(), rank), (V{2 * dp + tp, 4 + 2 * dp + tp, 8 + 2 * dp + tp}));
    EXPECT_EQ(Members(mesh.model(), rank),
              (V{2 * dp, 2 * dp + 1, 4 + 2 * dp, 5 + 2 * dp, 8 + 2 * dp, 9 + 2 * dp}));
    EXPECT_EQ(mesh.prints(), rank == 8);
    EXPECT_EQ(mesh.Describe(), Concat("rank ", rank, " (dp ", dp, ", pp ", pp, ", tp ", tp, ")"));
  });
}

// Columns in two blocks, each split unevenly over the ranks and padded; rank 2 holds none.
TEST(UnshardTest, PartsComeTogether) {
  RunRanks(3, [](const std::shared_ptr<Communicator>& world) {
    const int r = world->rank();
    const Shape global = {3, 10};
    const Tensor whole = Empty(global);
    for (int64_t i = 0; i < 30; ++i) whole.data<float>()[i] = static_cast<float>(i);
    const int64_t first[] = {0, 1, 4};
    const int64_t count[] = {1, 3, 0};
    const Placement placement = Placement::Split(global, 1,
                                                 {{4, first[r], count[r]},
                                                  {6, r == 0 ? 0 : 5,
                                                   r == 0   ? 5
                                                   : r == 1 ? 1
                                                            : 0}},
                                                 7);
    const Tensor local = Full(placement.local_shape(), -1.0);
    CopyGlobalToLocal(placement, whole, local);
    EXPECT_EQ(Unshard(local, placement, world).ToVector<float>(), whole.ToVector<float>());
    EXPECT_EQ(Unshard(whole, Placement::Whole(global), world).storage(), whole.storage());
    const Placement missing = Placement::Split(global, 1, {{10, 0, 9}});
    EXPECT_THROW(
        Unshard(Zeros({3, 9}), r == 0 ? missing : Placement::Split(global, 1, {{10, 0, 0}}), world),
        Error);
  });
}

// Every rank of a layout by itself has the places and names that all of them together have.
TEST(MeshTest, OneRankNeedsNoOther) {
  struct Layout {
    MeshSizes sizes;
    int world_size;
  };
  for (const Layout& layout : {Layout{{}, 1}, {{}, 3}, {{.tp = 2}, 4}, {{.tp = 2, .pp = 3}, 12}}) {
    RunRanks(layout.world_size, [&](const std::shared_ptr<Communicator>& world) {
      const Mesh all(world, layout.sizes);
      const Mesh one(layout.sizes, layout.world_size, world->rank(), LoneRankCommunicator);
      EXPECT_EQ(one.Describe(), all.Describe());
      EXPECT_EQ(one.prints(), all.prints());
      for (const auto group : {&Mesh::world, &Mesh::dp, &Mesh::pp, &Mesh::tp, &Mesh::model}) {
        EXPECT_EQ((one.*group)()->rank(), (all.*group)()->rank());
        EXPECT_EQ((one.*group)()->size(), (all.*group)()->size());
        EXPECT_EQ((one.*group)()->name(), (all.*group)()->name());
      }
    });
  }
  EXPECT_THROW(Mesh({.tp = 2}, 3, 0, LoneRankCommunicator), Error);
  EXPECT_THROW(Mesh({}, 3, 3, LoneRankCommunicator), Error);
}

TEST(MeshTest, OneProcess) {
  const Mesh mesh;
  EXPECT_EQ(mesh.dp()->size() * mesh.tp()->size() * mesh.pp()->size() * mesh.model()->size(), 1);
  EXPECT_TRUE(mesh.prints());
}

TEST(MeshTest, SizesThatDoNotDivideAreNamed) {
  EXPECT_TRUE(CheckMesh({.tp = 2, .pp = 2}, 8).ok());
  EXPECT_EQ(Message(CheckMesh({.tp = 3}, 8)), "tp 3 does not divide the world of 8 ranks");
  EXPECT_EQ(Message(CheckMesh({.tp = 2, .pp = 3}, 8)),
            "tp 2 x pp 3 = 6 does not divide the world of 8 ranks");
  EXPECT_EQ(Message(CheckMesh({.tp = 2}, 1)),
            "tp 2 does not divide the world of 1 rank; start the command under mpirun or tessera "
            "launch");
  EXPECT_EQ(Message(CheckMesh({.pp = 0}, 1)), "pp must be at least 1, not 0");
  EXPECT_THROW(Mesh(SingleProcessCommunicator(), {.tp = 2}), Error);
}

}  // namespace
}  // namespace tessera::dist
