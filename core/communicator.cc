// SPDX-License-Identifier: Apache-2.0
#include "core/communicator.h"

#include <algorithm>
#include <numeric>

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
  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override {
    CheckCounts(*this, out, receive_counts, in, send_counts);
    return Copy(out, in);
  }
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
                        ? in.Detach()
                        : in.AsStrided(out.shape(), ContiguousStrides(out.shape()), in.offset()));
    }
    return CompletedHandle();
  }
  std::string name_;
};

}  // namespace

CommHandlePtr Communicator::AllToAll(const Tensor& out, const Tensor& in) {
  TESSERA_CHECK(out.numel() == in.numel() && in.numel() % size() == 0, "all_to_all", in, " and ",
                out, " do not hold ", size(), " equal chunks");
  const std::vector<int64_t> counts(static_cast<size_t>(size()), in.numel() / size());
  return AllToAll(out, counts, in, counts);
}

CommHandlePtr CompletedHandle() { return std::make_unique<Completed>(); }

void CheckCounts(const Communicator& group, const Tensor& out,
                 const std::vector<int64_t>& receive_counts, const Tensor& in,
                 const std::vector<int64_t>& send_counts) {
  const auto check = [&](const Tensor& t, const std::vector<int64_t>& counts) {
    const bool negative =
        std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n < 0; });
    TESSERA_CHECK(std::ssize(counts) == group.size() && !negative &&
                      std::accumulate(counts.begin(), counts.end(), int64_t{0}) == t.numel(),
                  "all_to_all", "the counts of the ", group.size(), " ranks of group ",
                  group.name(), " are not those of ", t);
  };
  TESSERA_CHECK(out.dtype() == in.dtype(), "all_to_all", in, " and ", out, " differ in dtype");
  check(out, receive_counts);
  check(in, send_counts);
  const auto own = static_cast<size_t>(group.rank());
  TESSERA_CHECK(send_counts[own] == receive_counts[own], "all_to_all", "rank ", own, " of group ",
                group.name(), " waits for ", receive_counts[own], " elements of itself, but sends ",
                send_counts[own]);
}

std::shared_ptr<Communicator> SingleProcessCommunicator(const std::string& name) {
  return std::make_shared<SingleProcess>(name);
}

}  // namespace tessera
