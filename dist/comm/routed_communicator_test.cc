// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/routed_communicator.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/thread_communicator.h"

namespace tessera::dist {
namespace {

// `host` stands for a GPU: a device of its own, wherever its memory lies.
const Device kDevice = Device::Host();

// Refuses tensors of any other device, as NCCL does.
class OnlyOn final : public Communicator {
 public:
  OnlyOn(const Device& device, std::shared_ptr<Communicator> inner)
      : device_(device), inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override {
    return inner_->AllReduce(Own(t), op);
  }
  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    return inner_->ReduceScatter(Own(out), Own(in), op);
  }
  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override {
    return inner_->AllGather(Own(out), Own(in));
  }
  CommHandlePtr Broadcast(const Tensor& t, int root) override {
    return inner_->Broadcast(Own(t), root);
  }
  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override {
    return inner_->AllToAll(Own(out), receive_counts, Own(in), send_counts);
  }
  CommHandlePtr Send(const Tensor& t, int destination, int tag) override {
    return inner_->Send(Own(t), destination, tag);
  }
  CommHandlePtr Receive(const Tensor& t, int source, int tag) override {
    return inner_->Receive(Own(t), source, tag);
  }
  void Barrier() override { inner_->Barrier(); }
  std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    return std::make_shared<OnlyOn>(device_, inner_->Split(color, key, name));
  }

 private:
  const Tensor& Own(const Tensor& t) const {
    TESSERA_CHECK(t.device() == device_, "test", t, " is not on ", device_);
    return t;
  }
  const Device device_;
  const std::shared_ptr<Communicator> inner_;
};

Tensor On(const Device& device, std::vector<float> values) {
  const auto n = std::ssize(values);
  return CopyTo(Tensor::FromVector<float>(values, {n}), device);
}

// Every operation on three ranks, tensors on `device`.
void ExpectEveryOperation(Communicator& group, const Device& device) {
  const auto r = static_cast<float>(group.rank());
  const Tensor sum = On(device, {r, 1});
  group.AllReduce(sum, ReduceOp::kSum)->Wait();
  EXPECT_EQ(sum.ToVector<float>(), (std::vector<float>{3, 3}));

  const Tensor gathered = Zeros({3}, DType::kFloat32, device);
  group.AllGather(gathered, On(device, {r}))->Wait();
  EXPECT_EQ(gathered.ToVector<float>(), (std::vector<float>{0, 1, 2}));

  const Tensor part = Zeros({1}, DType::kFloat32, device);
  group.ReduceScatter(part, gathered, ReduceOp::kMax)->Wait();
  EXPECT_EQ(part.Item(), r);

  const Tensor got = Zeros({3}, DType::kFloat32, device);
  group.AllToAll(got, On(device, {10 * r, 10 * r + 1, 10 * r + 2}))->Wait();
  EXPECT_EQ(got.ToVector<float>(), (std::vector<float>{r, 10 + r, 20 + r}));

  // Rank 0 gives each rank one more element than the one before; ranks 1 and 2 give rank 0 one.
  const std::vector<int64_t> send =
      r == 0 ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{1, 0, 0};
  const std::vector<int64_t> receive =
      r == 0 ? std::vector<int64_t>{0, 1, 1} : std::vector<int64_t>{group.rank(), 0, 0};
  const Tensor some = Zeros({r == 2 || r == 0 ? 2 : 1}, DType::kFloat32, device);
  const std::vector<float> mine = r == 0 ? std::vector<float>{5, 6, 7} : std::vector<float>{r};
  group.AllToAll(some, receive, On(device, mine), send)->Wait();
  const std::vector<std::vector<float>> expected = {{1, 2}, {5}, {6, 7}};
  EXPECT_EQ(some.ToVector<float>(), expected[static_cast<size_t>(group.rank())]);

  const Tensor given = On(device, {r});
  group.Broadcast(given, 1)->Wait();
  EXPECT_EQ(given.Item(), 1);

  const int next = (group.rank() + 1) % 3, last = (group.rank() + 2) % 3;
  const Tensor message = Zeros({1}, DType::kFloat32, device);
  group.Send(On(device, {r}), next, 5)->Wait();
  group.Receive(message, last, 5);  // a handle that is dropped waits
  EXPECT_EQ(message.Item(), last);
  group.Barrier();
}

TEST(RoutedCommunicatorTest, EachDeviceHasItsWay) {
  RunRanks(3, [](std::shared_ptr<Communicator> world) {
    const auto others = std::make_shared<OnlyOn>(Device::Cpu(), world);
    const auto of_device =
        std::make_shared<OnlyOn>(kDevice, world->Split(0, world->rank(), "device"));
    const auto routed = RoutedCommunicator(others, of_device, kDevice);
    ExpectEveryOperation(*routed, Device::Cpu());
    ExpectEveryOperation(*routed, kDevice);
    ExpectEveryOperation(*routed->Split(0, routed->rank(), "again"), kDevice);
  });
}

}  // namespace
}  // namespace tessera::dist
