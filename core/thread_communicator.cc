// SPDX-License-Identifier: Apache-2.0
#include "core/thread_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "core/combine_elements.h"

namespace tessera {
namespace {

// Set when a rank has failed: every wait of every group of the run ends with an Error.
struct Abort {
  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
};

// What one rank brings to a collective.
struct Contribution {
  std::string contract;  // operation, dtype and count, which must agree over ranks
  Tensor in;
  Tensor out;
  int color = 0;
  int key = 0;
  // Of `in`, where ranks may bring other numbers. A copy: a rank whose check fails leaves while
  // others still read it.
  std::optional<std::vector<int64_t>> counts = std::nullopt;
};

// The state shared by the ranks of one group. One mutex serves all groups of a run (`abort`).
struct Group {
  Group(int size, std::string name, std::shared_ptr<Abort> abort)
      : size(size), name(std::move(name)), abort(std::move(abort)), contributions(size) {}

  const int size;
  const std::string name;
  const std::shared_ptr<Abort> abort;
  std::vector<Contribution> contributions;
  int arrived = 0;
  int departed = 0;
  uint64_t round = 0;
  std::string mismatch;
  std::map<int, std::shared_ptr<Group>> children;
  std::map<std::tuple<int, int, int>, std::deque<Tensor>> mail;  // (source, destination, tag)
};

Tensor Flat(const Tensor& t, int64_t begin, int64_t count) {
  return t.AsStrided({count}, {1}, t.offset() + begin);
}

// What travels is the transport's, and counts among no rank's bytes.
Tensor Uncounted(const Shape& shape, DType dtype, const Device& device) {
  if (!device.is_cpu()) return Empty(shape, dtype, device);
  const size_t bytes = static_cast<size_t>(shape.numel()) * DTypeSize(dtype);
  const auto memory =
      std::make_shared_for_overwrite<std::max_align_t[]>(bytes / sizeof(std::max_align_t) + 1);
  return Tensor(std::make_shared<Storage>(memory.get(), bytes, device, memory), shape,
                ContiguousStrides(shape), 0, dtype);
}

Tensor UncountedCopy(const Tensor& t, DType dtype) {
  Tensor copy = Uncounted(t.shape(), dtype, t.device());
  CopyInto(copy, t.Detach());
  return copy;
}

// out = op over ranks of elements [begin, begin + out.numel()) of their `in`, in rank order.
void Reduce(const std::vector<Contribution>& all, int64_t begin, const Tensor& out, ReduceOp op) {
  const int64_t n = out.numel();
  const DType wide = IsFloating(out.dtype()) ? AccumulateDType(out.dtype()) : out.dtype();
  const Tensor sum = UncountedCopy(Flat(all[0].in, begin, n), wide);
  for (size_t r = 1; r < all.size(); ++r) {
    const Tensor next = UncountedCopy(Flat(all[r].in, begin, n), wide);
    CombineElements(wide, sum.raw_data(), next.raw_data(), n, op);
  }
  CopyInto(Flat(out, 0, n), sum);
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }
  const std::string& name() const override { return group_->name; }

  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override {
    if (t.device().is_meta()) return CompletedHandle();
    const Tensor result = Uncounted(t.shape(), t.dtype(), t.device());
    Exchange("all_reduce", {"", t, t}, [&](const auto& all) { Reduce(all, 0, result, op); });
    CopyInto(Flat(t, 0, t.numel()), Flat(result, 0, t.numel()));
    return CompletedHandle();
  }

  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    CheckChunks("reduce_scatter", in, out);
    if (in.device().is_meta()) return CompletedHandle();
    Exchange("reduce_scatter", {"", in, out},
             [&](const auto& all) { Reduce(all, rank_ * out.numel(), out, op); });
    return CompletedHandle();
  }

  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override {
    CheckChunks("all_gather", out, in);
    if (in.device().is_meta()) return CompletedHandle();
    const int64_t n = in.numel();
    Exchange("all_gather", {"", in, out}, [&](const auto& all) {
      for (int r = 0; r < size(); ++r) {
        const Tensor place = Flat(out, r * n, n);
        if (n > 0 && all[r].in.raw_data() == place.raw_data()) continue;  // in place
        CopyInto(place, Flat(all[r].in, 0, n));
      }
    });
    return CompletedHandle();
  }

  CommHandlePtr Broadcast(const Tensor& t, int root) override {
    TESSERA_CHECK(root >= 0 && root < size(), "broadcast", "root ", root, " in group ", name());
    if (t.device().is_meta()) return CompletedHandle();
    Exchange("broadcast", {"", t, t}, [&](const auto& all) {
      if (rank_ != root) CopyInto(Flat(t, 0, t.numel()), Flat(all[root].in, 0, t.numel()));
    });
    return CompletedHandle();
  }

  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override {
    CheckCounts(*this, out, receive_counts, in, send_counts);
    if (in.device().is_meta()) return CompletedHandle();
    Contribution mine = {"", in, out};
    mine.counts = send_counts;
    Exchange("all_to_all", mine, [&](const auto& all) {
      int64_t place = 0;
      for (size_t r = 0; r < all.size(); ++r) {
        const std::vector<int64_t>& sent = *all[r].counts;
        const int64_t n = sent[static_cast<size_t>(rank_)];
        TESSERA_CHECK(n == receive_counts[r], "all_to_all", "rank ", rank_, " of group ", name(),
                      " waits for ", receive_counts[r], " elements of rank ", r, ", which sends ",
                      n);
        const int64_t begin = std::accumulate(sent.begin(), sent.begin() + rank_, int64_t{0});
        CopyInto(Flat(out, place, n), Flat(all[r].in, begin, n));
        place += n;
      }
    });
    return CompletedHandle();
  }

  CommHandlePtr Send(const Tensor& t, int destination, int tag) override {
    CheckPeer("send", destination, tag);
    if (t.device().is_meta()) return CompletedHandle();
    Tensor copy = UncountedCopy(t, t.dtype());
    std::lock_guard<std::mutex> lock(group_->abort->mutex);
    group_->mail[{rank_, destination, tag}].push_back(std::move(copy));
    group_->abort->changed.notify_all();
    return CompletedHandle();
  }

  CommHandlePtr Receive(const Tensor& t, int source, int tag) override {
    CheckPeer("receive", source, tag);
    if (t.device().is_meta()) return CompletedHandle();
    std::unique_lock<std::mutex> lock(group_->abort->mutex);
    auto& box = group_->mail[{source, rank_, tag}];
    Await(lock, "receive", [&] { return !box.empty(); });
    const Tensor message = box.front();
    box.pop_front();
    lock.unlock();
    CopyInto(t, message);
    return CompletedHandle();
  }

  void Barrier() override {
    Exchange("barrier", {}, [](const auto&) {});
  }

  std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    std::vector<std::tuple<int, int>> members;  // (key, rank) of this rank's color
    Contribution mine;
    mine.color = color;
    mine.key = key;
    std::shared_ptr<Group> child;
    Exchange("split", mine, [&](const auto& all) {
      for (int r = 0; r < size(); ++r) {
        if (all[r].color == color) members.emplace_back(all[r].key, r);
      }
      std::lock_guard<std::mutex> lock(group_->abort->mutex);
      auto& entry = group_->children[color];
      if (entry == nullptr) {
        entry = std::make_shared<Group>(static_cast<int>(members.size()), name, group_->abort);
      }
      child = entry;
    });
    Exchange("split", {}, [&](const auto&) {
      std::lock_guard<std::mutex> lock(group_->abort->mutex);
      group_->children.clear();
    });
    std::sort(members.begin(), members.end());
    int rank = 0;
    while (std::get<1>(members[rank]) != rank_) ++rank;
    return std::make_shared<ThreadCommunicator>(child, rank);
  }

 private:
  template <typename Ready>
  void Await(std::unique_lock<std::mutex>& lock, const char* operation, Ready ready) {
    Abort& abort = *group_->abort;
    abort.changed.wait(lock, [&] { return abort.failed || ready(); });
    if (!ready()) {
      throw Error(operation, Concat("another rank of group ", name(), " has failed"));
    }
  }

  // Waits for all ranks, runs `body` on every rank at once with all contributions, and waits until
  // all have run it, so that operands may be reused.
  template <typename Body>
  void Exchange(const char* operation, Contribution mine, Body body) {
    mine.contract = operation;
    if (mine.in.defined()) mine.contract += Concat(" of ", mine.in.dtype());
    if (mine.in.defined() && !mine.counts) {
      mine.contract += Concat(" x ", mine.in.numel());
    }
    if (mine.in.defined()) {
      TESSERA_CHECK(mine.in.is_contiguous() && mine.out.is_contiguous(), operation,
                    "tensors must be contiguous");
    }
    Group& g = *group_;
    std::unique_lock<std::mutex> lock(g.abort->mutex);
    Await(lock, operation, [&] { return g.departed == 0 || g.arrived < g.size; });
    g.contributions[rank_] = std::move(mine);
    const uint64_t round = g.round;
    if (++g.arrived == g.size) {
      g.mismatch.clear();
      for (int r = 1; r < g.size; ++r) {
        if (g.contributions[r].contract != g.contributions[0].contract) {
          g.mismatch = Concat("group ", g.name, ": rank 0 calls ", g.contributions[0].contract,
                              " but rank ", r, " calls ", g.contributions[r].contract);
        }
      }
      g.abort->changed.notify_all();
    }
    Await(lock, operation, [&] { return g.arrived == g.size; });
    const std::string mismatch = g.mismatch;
    lock.unlock();
    if (mismatch.empty()) body(g.contributions);
    lock.lock();
    if (++g.departed == g.size) {
      g.arrived = 0;
      g.departed = 0;
      ++g.round;
      for (Contribution& c : g.contributions) c = {};
      g.abort->changed.notify_all();
    }
    Await(lock, operation, [&] { return g.round != round; });
    lock.unlock();
    if (!mismatch.empty()) throw Error(operation, mismatch);
  }

  void CheckChunks(const char* operation, const Tensor& whole, const Tensor& chunk) const {
    TESSERA_CHECK(whole.numel() == chunk.numel() * size() && whole.dtype() == chunk.dtype(),
                  operation, whole, " is not ", size(), " times ", chunk);
  }
  void CheckPeer(const char* operation, int peer, int tag) const {
    TESSERA_CHECK(tag >= 0 && tag <= kLargestTag, operation, "tag ", tag, " is not in 0..",
                  kLargestTag);
    TESSERA_CHECK(peer >= 0 && peer < size() && peer != rank_, operation, "rank ", peer,
                  " is not another rank of group ", name());
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
};

}  // namespace

void RunRanks(int size, const std::function<void(std::shared_ptr<Communicator> world)>& body) {
  auto abort = std::make_shared<Abort>();
  auto group = std::make_shared<Group>(size, "world", abort);
  std::exception_ptr first;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(std::make_shared<ThreadCommunicator>(group, rank));
      } catch (...) {
        std::lock_guard<std::mutex> lock(abort->mutex);
        if (!abort->failed) first = std::current_exception();
        abort->failed = true;
        abort->changed.notify_all();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace tessera
