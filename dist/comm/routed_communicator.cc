// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/routed_communicator.h"

#include <string>
#include <utility>

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
  CommHandlePtr AllToAll(const Tensor& out, const Tensor& in) override {
    return By(in).AllToAll(out, in);
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

// What travels, and where its result belongs.
class StagedHandle final : public CommHandle {
 public:
  StagedHandle(CommHandlePtr handle, Tensor result, Tensor staged)
      : handle_(std::move(handle)), result_(std::move(result)), staged_(std::move(staged)) {}
  ~StagedHandle() override { Wait(); }

  void Wait() override {
    if (handle_ == nullptr) return;
    std::exchange(handle_, nullptr)->Wait();
    CopyInto(result_, staged_);
  }

 private:
  CommHandlePtr handle_;
  const Tensor result_;
  const Tensor staged_;
};

class Staged final : public Communicator {
 public:
  Staged(std::shared_ptr<Communicator> inner, const Device& device)
      : inner_(std::move(inner)), device_(device) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }

  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override {
    if (Passes(t)) return inner_->AllReduce(t, op);
    const Tensor staged = CopyTo(t, device_);
    return Return(inner_->AllReduce(staged, op), t, staged);
  }
  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    if (Passes(in)) return inner_->ReduceScatter(out, in, op);
    const Tensor staged = Room(out);
    return Return(inner_->ReduceScatter(staged, CopyTo(in, device_), op), out, staged);
  }
  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override {
    if (Passes(in)) return inner_->AllGather(out, in);
    const Tensor staged = Room(out);
    return Return(inner_->AllGather(staged, CopyTo(in, device_)), out, staged);
  }
  CommHandlePtr Broadcast(const Tensor& t, int root) override {
    if (Passes(t)) return inner_->Broadcast(t, root);
    const Tensor staged = CopyTo(t, device_);
    return Return(inner_->Broadcast(staged, root), t, staged);
  }
  CommHandlePtr AllToAll(const Tensor& out, const Tensor& in) override {
    if (Passes(in)) return inner_->AllToAll(out, in);
    const Tensor staged = Room(out);
    return Return(inner_->AllToAll(staged, CopyTo(in, device_)), out, staged);
  }
  CommHandlePtr Send(const Tensor& t, int destination, int tag) override {
    return inner_->Send(Passes(t) ? t : CopyTo(t, device_), destination, tag);
  }
  CommHandlePtr Receive(const Tensor& t, int source, int tag) override {
    if (Passes(t)) return inner_->Receive(t, source, tag);
    const Tensor staged = Room(t);
    return Return(inner_->Receive(staged, source, tag), t, staged);
  }
  void Barrier() override { inner_->Barrier(); }

  std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    return StagedCommunicator(inner_->Split(color, key, name), device_);
  }

 private:
  bool Passes(const Tensor& t) const { return t.device() == device_ || t.device().is_meta(); }
  Tensor Room(const Tensor& like) const { return Empty(like.shape(), like.dtype(), device_); }
  static CommHandlePtr Return(CommHandlePtr handle, const Tensor& result, const Tensor& staged) {
    return std::make_unique<StagedHandle>(std::move(handle), result, staged);
  }

  const std::shared_ptr<Communicator> inner_;
  const Device device_;
};

}  // namespace

std::shared_ptr<Communicator> RoutedCommunicator(std::shared_ptr<Communicator> others,
                                                 std::shared_ptr<Communicator> of_device,
                                                 const Device& device) {
  return std::make_shared<Routed>(std::move(others), std::move(of_device), device);
}

std::shared_ptr<Communicator> StagedCommunicator(std::shared_ptr<Communicator> inner,
                                                 const Device& device) {
  return std::make_shared<Staged>(std::move(inner), device);
}

}  // namespace tessera::dist
