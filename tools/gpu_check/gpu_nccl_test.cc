// SPDX-License-Identifier: Apache-2.0
// NCCL with one rank: every operation, on every dtype, through the library itself.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "dist/comm/nccl_communicator.h"
#include "ops/testing/op_check.h"

namespace tessera::dist {
namespace {

TEST(GpuNcclTest, OneRankDoesEveryOperation) {
  const Status status = CheckDeviceAvailable(Device::Cuda(0));
  if (!status.ok()) GTEST_SKIP() << Message(status);
  const auto id = NewNcclId();
  ASSERT_TRUE(id.ok()) << Message(id.status());
  const auto opened = OpenNccl(*id, 0, 1, {});
  ASSERT_TRUE(opened.ok()) << Message(opened.status());
  Communicator& world = **opened;
  EXPECT_EQ(world.size(), 1);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                            DType::kInt64, DType::kInt32, DType::kUInt8}) {
    // Whole numbers, so that every dtype holds them.
    const Tensor x = CopyTo(CastCopy(RandomIndices({37, 5}, 100, 1), dtype), Device::Cuda(0));
    const auto out = [&] { return Full(x.shape(), 1.0, dtype, Device::Cuda(0)); };
    const std::vector<std::pair<std::string, std::function<Tensor()>>> operations = {
        {"all_reduce",
         [&] {
           const Tensor y = out();
           CopyInto(y, x);
           world.AllReduce(y, ReduceOp::kSum)->Wait();
           return y;
         }},
        {"broadcast",
         [&] {
           const Tensor y = out();
           CopyInto(y, x);
           world.Broadcast(y, 0)->Wait();
           return y;
         }},
        {"all_gather",
         [&] {
           const Tensor y = out();
           world.AllGather(y, x)->Wait();
           return y;
         }},
        {"reduce_scatter",
         [&] {
           const Tensor y = out();
           world.ReduceScatter(y, x, ReduceOp::kSum)->Wait();
           return y;
         }},
        {"all_to_all",
         [&] {
           const Tensor y = out();
           world.AllToAll(y, x)->Wait();
           return y;
         }},
        {"all_to_all of counts",
         [&] {
           const Tensor y = out();
           const Tensor none = Empty({0}, dtype, Device::Cuda(0));
           world.AllToAll(none, {0}, none, {0})->Wait();
           world.AllToAll(y, {y.numel()}, x, {x.numel()})->Wait();
           return y;
         }},
    };
    for (const auto& [name, run] : operations) {
      EXPECT_EQ(run().ToVector<double>(), x.ToVector<double>()) << name << " " << dtype;
    }
  }
  const auto part = world.Split(3, 0, "part");
  EXPECT_EQ(part->size(), 1);
  const Tensor one = Full({8}, 2.0, DType::kFloat32, Device::Cuda(0));
  part->AllReduce(one, ReduceOp::kMax)->Wait();
  EXPECT_EQ(one.ToVector<float>(), std::vector<float>(8, 2.0f));
  part->Barrier();
  world.Barrier();
}

}  // namespace
}  // namespace tessera::dist
