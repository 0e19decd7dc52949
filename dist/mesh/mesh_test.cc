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

// Expert parallelism divides dp: ep neighbours share experts out, and edp has who holds the same.
TEST(MeshTest, ExpertParallelRanksAreNeighbours) {
  struct Groups {
    std::vector<int64_t> dp, ep, edp;
  };
  struct Layout {
    MeshSizes sizes;
    int world_size;
    std::vector<Groups> of;  // each rank of the world, in order
  };
  const Layout layouts[] = {
      // dp 4.
      {{.tp = 2, .ep = 2},
       8,
       {{{0, 4, 2, 6}, {0, 2}, {0, 4}},
        {{1, 5, 3, 7}, {1, 3}, {1, 5}},
        {{0, 4, 2, 6}, {0, 2}, {2, 6}},
        {{1, 5, 3, 7}, {1, 3}, {3, 7}},
        {{0, 4, 2, 6}, {4, 6}, {0, 4}},
        {{1, 5, 3, 7}, {5, 7}, {1, 5}},
        {{0, 4, 2, 6}, {4, 6}, {2, 6}},
        {{1, 5, 3, 7}, {5, 7}, {3, 7}}}},
      // All of dp 4.
      {{.tp = 2, .ep = 4},
       8,
       {{{0, 2, 4, 6}, {0, 2, 4, 6}, {0}},
        {{1, 3, 5, 7}, {1, 3, 5, 7}, {1}},
        {{0, 2, 4, 6}, {0, 2, 4, 6}, {2}},
        {{1, 3, 5, 7}, {1, 3, 5, 7}, {3}},
        {{0, 2, 4, 6}, {0, 2, 4, 6}, {4}},
        {{1, 3, 5, 7}, {1, 3, 5, 7}, {5}},
        {{0, 2, 4, 6}, {0, 2, 4, 6}, {6}},
        {{1, 3, 5, 7}, {1, 3, 5, 7}, {7}}}},
      // dp 4 of each of two stages.
      {{.pp = 2, .ep = 2},
       8,
       {{{0, 2, 1, 3}, {0, 1}, {0, 2}},
        {{0, 2, 1, 3}, {0, 1}, {1, 3}},
        {{0, 2, 1, 3}, {2, 3}, {0, 2}},
        {{0, 2, 1, 3}, {2, 3}, {1, 3}},
        {{4, 6, 5, 7}, {4, 5}, {4, 6}},
        {{4, 6, 5, 7}, {4, 5}, {5, 7}},
        {{4, 6, 5, 7}, {6, 7}, {4, 6}},
        {{4, 6, 5, 7}, {6, 7}, {5, 7}}}},
  };
  for (const Layout& layout : layouts) {
    RunRanks(layout.world_size, [&](const std::shared_ptr<Communicator>& world) {
      const Mesh mesh(world, layout.sizes);
      const int rank = world->rank();
      const Groups& expected = layout.of[static_cast<size_t>(rank)];
      EXPECT_EQ(Members(mesh.dp(), rank), expected.dp) << mesh.Describe();
      EXPECT_EQ(Members(mesh.ep(), rank), expected.ep) << mesh.Describe();
      EXPECT_EQ(Members(mesh.edp(), rank), expected.edp) << mesh.Describe();
      EXPECT_EQ(mesh.dp()->rank(), mesh.ep()->rank() * mesh.edp()->size() + mesh.edp()->rank());
      EXPECT_EQ(mesh.ep()->name(), "ep");
      EXPECT_EQ(mesh.edp()->name(), "edp");
      // Stages and tensor-parallel ranks of one copy of the model have one place.
      const int tp = layout.sizes.tp;
      const int model_ranks = tp * layout.sizes.pp;
      const int place = rank / tp % (layout.world_size / model_ranks);
      std::vector<int64_t> model;
      for (int i = 0; i < model_ranks; ++i) {
        const int stage = i / tp;
        model.push_back((stage * (layout.world_size / model_ranks) + place) * tp + i % tp);
      }
      EXPECT_EQ(Members(mesh.model(), rank), model);
      EXPECT_EQ(mesh.Describe(),
                Concat("rank ", rank, " (dp ", mesh.dp()->rank(), ", ep ", mesh.ep()->rank(),
                       ", pp ", mesh.pp()->rank(), ", tp ", mesh.tp()->rank(), ")"));
    });
  }
}

// Context parallelism divides dp, too: neighbours see the same rows.
TEST(MeshTest, ContextParallelRanksAreNeighbours) {
  RunRanks(16, [](const std::shared_ptr<Communicator>& world) {
    const Mesh mesh(world, {.tp = 2, .pp = 2, .ep = 2, .cp = 2});
    const int dp = mesh.dp()->rank();
    EXPECT_EQ(mesh.cp()->size(), 2);
    EXPECT_EQ(mesh.cp()->rank(), dp % 2);
    EXPECT_EQ(mesh.data_rank(), dp / 2);
    EXPECT_EQ(mesh.data_ranks(), 2);
    const std::vector<int64_t> dp_ranks = Members(mesh.dp(), world->rank());
    const auto first = static_cast<size_t>(dp / 2 * 2);
    EXPECT_EQ(Members(mesh.cp(), world->rank()),
              (std::vector<int64_t>{dp_ranks[first], dp_ranks[first + 1]}));
    EXPECT_EQ(mesh.cp()->name(), "cp");
    EXPECT_EQ(mesh.Describe(), Concat("rank ", world->rank(), " (dp ", dp, ", cp ", dp % 2, ", ep ",
                                      mesh.ep()->rank(), ", pp ", mesh.pp()->rank(), ", tp ",
                                      mesh.tp()->rank(), ")"));
  });
  RunRanks(4, [](const std::shared_ptr<Communicator>& world) {
    const Mesh mesh(world, {.tp = 2});
    EXPECT_EQ(mesh.cp()->size(), 1);
    EXPECT_EQ(mesh.data_rank(), mesh.dp()->rank());
    EXPECT_EQ(mesh.data_ranks(), 2);
  });
  EXPECT_EQ(Message(CheckMesh({.cp = 3}, 4)), "cp 3 does not divide the 4 data-parallel ranks");
  EXPECT_EQ(Message(CheckMesh({.cp = 0}, 4)), "cp must be at least 1, not 0");
}

TEST(MeshTest, WithoutExpertParallelismAllDataParallelRanksHoldTheSame) {
  RunRanks(4, [](const std::shared_ptr<Communicator>& world) {
    const Mesh mesh(world, {.tp = 2});
    EXPECT_EQ(mesh.edp(), mesh.dp());
    EXPECT_EQ(mesh.ep()->size(), 1);
    EXPECT_EQ(mesh.ep()->rank(), 0);
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
  for (const Layout& layout : {Layout{{}, 1},
                               {{}, 3},
                               {{.tp = 2}, 4},
                               {{.tp = 2, .pp = 3}, 12},
                               {{.ep = 4}, 4},
                               {{.ep = 2}, 8},
                               {{.tp = 2, .pp = 2, .ep = 2}, 16}}) {
    RunRanks(layout.world_size, [&](const std::shared_ptr<Communicator>& world) {
      const Mesh all(world, layout.sizes);
      const Mesh one(layout.sizes, layout.world_size, world->rank(), LoneRankCommunicator);
      EXPECT_EQ(one.Describe(), all.Describe());
      EXPECT_EQ(one.prints(), all.prints());
      for (const auto group :
           {&Mesh::world, &Mesh::dp, &Mesh::pp, &Mesh::tp, &Mesh::model, &Mesh::ep, &Mesh::edp}) {
        EXPECT_EQ((one.*group)()->rank(), (all.*group)()->rank());
        EXPECT_EQ((one.*group)()->size(), (all.*group)()->size());
        EXPECT_EQ((one.*group)()->name(), (all.*group)()->name());
      }
    });
  }
  EXPECT_THROW(Mesh({.tp = 2}, 3, 0, LoneRankCommunicator), Error);
  EXPECT_THROW(Mesh({.ep = 2}, 3, 0, LoneRankCommunicator), Error);
  EXPECT_THROW(Mesh({}, 3, 3, LoneRankCommunicator), Error);
}

TEST(MeshTest, OneProcess) {
  const Mesh mesh;
  EXPECT_EQ(mesh.dp()->size() * mesh.tp()->size() * mesh.pp()->size() * mesh.model()->size(), 1);
  EXPECT_EQ(mesh.ep()->size() * mesh.edp()->size(), 1);
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
  EXPECT_TRUE(CheckMesh({.tp = 2, .pp = 2, .ep = 2}, 8).ok());
  EXPECT_EQ(Message(CheckMesh({.ep = 0}, 4)), "ep must be at least 1, not 0");
  EXPECT_EQ(Message(CheckMesh({.ep = 3}, 4)), "ep 3 does not divide the 4 data-parallel ranks");
  EXPECT_EQ(Message(CheckMesh({.tp = 2, .pp = 4, .ep = 2}, 8)),
            "ep 2 does not divide the 1 data-parallel rank");
  EXPECT_EQ(Message(CheckMesh({.ep = 2}, 1)),
            "ep 2 does not divide the 1 data-parallel rank; start the command under mpirun or "
            "tessera launch");
  EXPECT_THROW(Mesh(SingleProcessCommunicator(), {.tp = 2}), Error);
}

}  // namespace
}  // namespace tessera::dist
