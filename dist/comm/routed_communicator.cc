// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/routed_communicator.h"

#include <string>
#include <utility>
#include <vector>

namespace tessera::dist {
namespace {

class Routed final : public Communicator {
 public:
  Routed(std::shared_ptr<Communicator> others, std::shared_ptr<Communicator> of_device,
         const Device& device)
      : others_(std::move(others)), of_device_(std::move(of_device)), device_(device) {
    TESSERA_CHECK(others_->size() == of_device_->size() && others_->rank() == of_device_->rank(),
                  "routed communicator", "rank ", others_->rank(), " of ", others_->size(),
                  " is rank ", of_device_->rank(), " of ", of_device_->size(), " on ", device);
  }

  int rank() const override { return others_->rank(); }
  int size() const override { return others_->size(); }
  const std::string& name() const override { return others_->name(); }

  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override { return By(t).AllReduce(t, op); }
  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    return By(in).ReduceScatter(out, in, op);
  }
  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override {
    return By(in).AllGather(out, in);
  }
  CommHandlePtr Broadcast(const Tensor& t, int root) override { return By(t).Broadcast(t, root); }
  using Communicator::AllToAll;
  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override {
    return By(in).AllToAll(out, receive_counts, in, send_counts);
  }
  CommHandlePtr Send(const Tensor& t, int destination, int tag) override {
    return By(t).Send(t, destination, tag);
  }
  CommHandlePtr Receive(const Tensor& t, int source, int tag) override {
    return By(t).Receive(t, source, tag);
  }
  void Barrier() override { others_->Barrier(); }

  std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    auto others = others_->Split(color, key, name);
    return RoutedCommunicator(std::move(others), of_device_->Split(color, key, name), device_);
  }

 private:
  Communicator& By(const Tensor& t) const { return t.device() == device_ ? *of_device_ : *others_; }

  const std::shared_ptr<Communicator> others_;
  const std::shared_ptr<Communicator> of_device_;
  const Device device_;
};

}  // namespace

std::shared_ptr<Communicator> RoutedCommunicator(std::shared_ptr<Communicator> others,
                                                 std::shared_ptr<Communicator> of_device,
                                                 const Device& device) {
  return std::make_shared<Routed>(std::move(others), std::move(of_device), device);
}

}  // namespace tessera::dist
