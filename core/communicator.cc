// SPDX-License-Identifier: Apache-2.0
#include "core/communicator.h"

namespace tessera {
namespace {

class Completed final : public CommHandle {
 public:
  void Wait() override {}
};

class SingleProcess final : public Communicator {
 public:
  explicit SingleProcess(std::string name) : name_(std::move(name)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }

  CommHandlePtr AllReduce(const Tensor&, ReduceOp) override { return CompletedHandle(); }
  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp) override {
    return Copy(out, in);
  }
  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override { return Copy(out, in); }
  CommHandlePtr Broadcast(const Tensor&, int root) override {
    TESSERA_CHECK(root == 0, "broadcast", "root ", root, " in a group of one");
    return CompletedHandle();
  }
  CommHandlePtr AllToAll(const Tensor& out, const Tensor& in) override { return Copy(out, in); }
  CommHandlePtr Send(const Tensor&, int destination, int) override {
    throw Error("send", Concat("rank ", destination, " is not another rank of group ", name_));
  }
  CommHandlePtr Receive(const Tensor&, int source, int) override {
    throw Error("receive", Concat("rank ", source, " is not another rank of group ", name_));
  }
  void Barrier() override {}
  std::shared_ptr<Communicator> Split(int, int, const std::string& name) override {
    return SingleProcessCommunicator(name);
  }

 private:
  static CommHandlePtr Copy(const Tensor& out, const Tensor& in) {
    if (out.numel() > 0 && !out.device().is_meta() && out.raw_data() != in.raw_data()) {
      CopyInto(out, in.shape() == out.shape()
                        ? in
                        : in.AsStrided(out.shape(), ContiguousStrides(out.shape()), in.offset()));
    }
    return CompletedHandle();
  }
  std::string name_;
};

}  // namespace

CommHandlePtr CompletedHandle() { return std::make_unique<Completed>(); }

std::shared_ptr<Communicator> SingleProcessCommunicator(const std::string& name) {
  return std::make_shared<SingleProcess>(name);
}

}  // namespace tessera
