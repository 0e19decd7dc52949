// SPDX-License-Identifier: Apache-2.0
#include "dist/dry_run/dry_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "core/tensor.h"

namespace tessera::dist {
namespace {

// Each rank holds, and needs at most, memory of its own, whatever the others hold meanwhile.
TEST(RankMeterTest, TellsTheBytesOfThreadsApart) {
  for (const Device& device : {Device::Cpu(), Device::Meta()}) {
    MeasureRanks(3, {device}, [&](const Group& world, const std::shared_ptr<RankMeter>& meter) {
      const int64_t unit = 4096 * (world->rank() + 1);
      const Tensor flag = Zeros({1}, DType::kFloat32, device);
      const Tensor kept = Empty({2 * unit}, DType::kUInt8, device);
      for (int round = 0; round < 3; ++round) {
        const Tensor one = Empty({unit}, DType::kUInt8, device);
        world->AllReduce(flag, ReduceOp::kSum)->Wait();
        world->Barrier();
        { const Tensor two = Empty({3 * unit}, DType::kUInt8, device); }
        world->AllReduce(flag, ReduceOp::kSum)->Wait();
        EXPECT_EQ(meter->current_bytes(device), 3 * unit + 64);
      }
      EXPECT_EQ(meter->current_bytes(device), 2 * unit + 64);
      EXPECT_EQ(meter->peak_bytes(device), 6 * unit + 64);
      meter->ResetPeaks();
      world->Barrier();
      EXPECT_EQ(meter->peak_bytes(device), 2 * unit + 64);
      EXPECT_THROW(meter->peak_bytes(Device::Host()), Error);
      EXPECT_EQ(meter->totals(CommKind::kAllReduce).calls, 6);
    });
  }
}

// Buckets of a rank at its own peak, whatever the others hold meanwhile.
TEST(RankMeterTest, TellsTheUsesOfThreadsApart) {
  const Device meta = Device::Meta();
  MeasureRanks(3, {meta, Device::Cpu()},
               [&](const Group& world, const std::shared_ptr<RankMeter>& meter) {
                 const int64_t unit = 4096 * (world->rank() + 1);
                 const auto bucket = [&](int64_t bytes) {
                   const MemoryUseScope use(MemoryUse::kBucket);
                   return Empty({bytes}, DType::kUInt8, meta);
                 };
                 const Tensor kept = bucket(unit);
                 world->Barrier();
                 {
                   const Tensor more = bucket(2 * unit);
                   world->Barrier();
                   const Tensor other = Empty({5 * unit}, DType::kUInt8, meta);
                   world->Barrier();
                 }
                 world->Barrier();
                 { const Tensor less = bucket(4 * unit); }
                 world->Barrier();
                 EXPECT_EQ(meter->peak_bytes(meta), 8 * unit);
                 EXPECT_EQ(meter->peak_uses(meta), (UseBytes{.buckets = 3 * unit}));
                 meter->ResetPeaks();
                 world->Barrier();
                 EXPECT_EQ(meter->peak_uses(meta), (UseBytes{.buckets = unit}));
                 EXPECT_EQ(meter->peak_uses(Device::Cpu()), UseBytes{});
               });
}

TEST(RankMeterTest, ARankThatFailsEndsTheOthers) {
  EXPECT_THROW(MeasureRanks(3, {Device::Cpu()},
                            [](const Group& world, const std::shared_ptr<RankMeter>&) {
                              if (world->rank() == 1) throw std::runtime_error("no more paper");
                              world->Barrier();
                            }),
               std::runtime_error);
}

TEST(DryRunTest, StagesTalkAndOtherRanksAreTakenToDoTheSame) {
  std::vector<int> ranks;
  DryRun({.sizes = {.tp = 2, .pp = 3}, .world_size = 24, .dp_rank = 3, .tp_rank = 1},
         [&](const Mesh& mesh, RankMeter& meter) {
           ranks.push_back(mesh.world()->rank());
           EXPECT_EQ(mesh.dp()->rank(), 3);
           EXPECT_EQ(mesh.dp()->size(), 4);
           EXPECT_EQ(mesh.tp()->rank(), 1);
           const Tensor stage = Full({1}, mesh.pp()->rank(), DType::kInt64);
           mesh.pp()->AllReduce(stage, ReduceOp::kSum)->Wait();
           EXPECT_EQ(stage.Item(), 0 + 1 + 2);
           const Tensor flags = Full({1}, 5, DType::kInt64);
           mesh.dp()->AllReduce(flags, ReduceOp::kSum)->Wait();
           EXPECT_EQ(flags.Item(), 4 * 5);
           const Tensor t = Empty({6}, DType::kFloat32, Device::Meta());
           if (mesh.pp()->rank() < 2) mesh.pp()->Send(t, mesh.pp()->rank() + 1, 0)->Wait();
           if (mesh.pp()->rank() > 0) mesh.pp()->Receive(t, mesh.pp()->rank() - 1, 0)->Wait();
           EXPECT_EQ(meter.totals().calls, mesh.pp()->rank() == 1 ? 4 : 3);
           EXPECT_EQ(meter.current_bytes(Device::Meta()), 64);
         });
  std::sort(ranks.begin(), ranks.end());
  EXPECT_EQ(ranks, (std::vector<int>{0 * 8 + 7, 1 * 8 + 7, 2 * 8 + 7}));
  EXPECT_THROW(DryRun({.sizes = {.tp = 2}, .world_size = 3}, nullptr), Error);
  EXPECT_THROW(DryRun({.sizes = {.ep = 2}, .world_size = 3}, nullptr), Error);
  EXPECT_THROW(DryRun({.device = Device::Cpu()}, nullptr), Error);
}

// With expert parallelism dp ranks are not in the order of the world.
TEST(DryRunTest, PlacesFollowFromTheDataParallelRank) {
  for (int dp_rank = 0; dp_rank < 8; ++dp_rank) {
    std::vector<int> stages;
    DryRun(
        {.sizes = {.tp = 2, .pp = 2, .ep = 4}, .world_size = 32, .dp_rank = dp_rank, .tp_rank = 1},
        [&](const Mesh& mesh, RankMeter&) {
          stages.push_back(mesh.pp()->rank());
          EXPECT_EQ(mesh.dp()->rank(), dp_rank);
          EXPECT_EQ(mesh.tp()->rank(), 1);
          EXPECT_EQ(mesh.ep()->size(), 4);
          EXPECT_EQ(mesh.edp()->size(), 2);
          EXPECT_EQ(mesh.ep()->rank(), dp_rank / 2);
          EXPECT_EQ(mesh.edp()->rank(), dp_rank % 2);
          const int place = dp_rank % 2 * 4 + dp_rank / 2;
          EXPECT_EQ(mesh.world()->rank(), (mesh.pp()->rank() * 8 + place) * 2 + 1);
        });
    std::sort(stages.begin(), stages.end());
    EXPECT_EQ(stages, (std::vector<int>{0, 1}));
  }
}

}  // namespace
}  // namespace tessera::dist
