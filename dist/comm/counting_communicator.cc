// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/counting_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace tessera::dist {

std::ostream& operator<<(std::ostream& out, CommKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                    "all_to_all", "send",           "receive",    "barrier"};
  return out << kNames[static_cast<size_t>(kind)];
}

std::ostream& operator<<(std::ostream& out, const CommCall& call) {
  out << call.kind << " of " << call.payload << " bytes in " << call.group << " of " << call.ranks;
  if (call.peer >= 0) out << " with rank " << call.peer;
  return out;
}

CommTotals CommRecord::totals(CommKind kind) const {
  CommTotals totals;
  for (const CommCall& call : calls_) {
    if (call.kind != kind) continue;
    ++totals.calls;
    totals.payload += call.payload;
    totals.sent += call.sent;
    totals.received += call.received;
  }
  return totals;
}

CommTotals CommRecord::totals() const {
  CommTotals all;
  for (int kind = 0; kind <= static_cast<int>(CommKind::kBarrier); ++kind) {
    const CommTotals one = totals(static_cast<CommKind>(kind));
    all.calls += one.calls;
    all.payload += one.payload;
    all.sent += one.sent;
    all.received += one.received;
  }
  return all;
}

// --- Counting ------------------------------------------------------------------------------------

class CountedGroup final : public Communicator {
 public:
  CountedGroup(std::shared_ptr<Communicator> group, std::shared_ptr<CommRecord> record)
      : group_(std::move(group)), record_(std::move(record)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }

  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override {
    const int64_t each = 2 * (size() - 1) * t.nbytes() / size();
    const Waiting waiting = Count(CommKind::kAllReduce, t, each, each);
    return group_->AllReduce(t, op);
  }
  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    const Waiting waiting = CountShares(CommKind::kReduceScatter, in);
    return group_->ReduceScatter(out, in, op);
  }
  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override {
    const Waiting waiting = CountShares(CommKind::kAllGather, out);
    return group_->AllGather(out, in);
  }
  CommHandlePtr Broadcast(const Tensor& t, int root) override {
    const bool sends = size() > 1 && (rank() + 1) % size() != root;
    const bool receives = rank() != root;
    const Waiting waiting =
        Count(CommKind::kBroadcast, t, sends ? t.nbytes() : 0, receives ? t.nbytes() : 0, root);
    return group_->Broadcast(t, root);
  }
  using Communicator::AllToAll;
  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override {
    CheckCounts(*this, out, receive_counts, in, send_counts);
    const auto others = [this](const Tensor& t, const std::vector<int64_t>& counts) {
      const int64_t elements = t.numel() - counts[static_cast<size_t>(rank())];
      return elements * static_cast<int64_t>(DTypeSize(t.dtype()));
    };
    std::vector<int64_t> sent_to;
    for (const int64_t count : send_counts) {
      sent_to.push_back(count * static_cast<int64_t>(DTypeSize(in.dtype())));
    }
    sent_to[static_cast<size_t>(rank())] = 0;
    const Waiting waiting = Count({.kind = CommKind::kAllToAll,
                                   .payload = in.nbytes(),
                                   .sent = others(in, send_counts),
                                   .received = others(out, receive_counts),
                                   .sent_to = std::move(sent_to)});
    return group_->AllToAll(out, receive_counts, in, send_counts);
  }
  CommHandlePtr Send(const Tensor& t, int destination, int tag) override {
    const Waiting waiting = Count(CommKind::kSend, t, t.nbytes(), 0, destination);
    return group_->Send(t, destination, tag);
  }
  CommHandlePtr Receive(const Tensor& t, int source, int tag) override {
    const Waiting waiting = Count(CommKind::kReceive, t, 0, t.nbytes(), source);
    return group_->Receive(t, source, tag);
  }
  void Barrier() override {
    const Waiting waiting = Count({.kind = CommKind::kBarrier});
    group_->Barrier();
  }
  std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    const Waiting waiting(record_.get());
    return CountingCommunicator(group_->Split(color, key, name), record_);
  }

 private:
  class Waiting {
   public:
    explicit Waiting(CommRecord* record) : record_(record) { record_->BeforeWaiting(); }
    ~Waiting() { record_->AfterWaiting(); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    CommRecord* const record_;
  };

  Waiting Count(CommCall call) const {
    call.group = name();
    call.ranks = size();
    record_->calls_.push_back(std::move(call));
    return Waiting(record_.get());
  }
  Waiting Count(CommKind kind, const Tensor& t, int64_t sent, int64_t received,
                int peer = -1) const {
    return Count(
        {.kind = kind, .peer = peer, .payload = t.nbytes(), .sent = sent, .received = received});
  }
  // This rank sends and receives every one of equal shares except its own.
  Waiting CountShares(CommKind kind, const Tensor& shares) const {
    const int64_t each = shares.nbytes() / size() * (size() - 1);
    return Count(kind, shares, each, each);
  }

  const std::shared_ptr<Communicator> group_;
  const std::shared_ptr<CommRecord> record_;
};

std::shared_ptr<Communicator> CountingCommunicator(std::shared_ptr<Communicator> group,
                                                   std::shared_ptr<CommRecord> record) {
  return std::make_shared<CountedGroup>(std::move(group), std::move(record));
}

// --- A rank alone --------------------------------------------------------------------------------

namespace {

Tensor Flat(const Tensor& t, int64_t begin, int64_t count) {
  return t.AsStrided({count}, {1}, t.offset() + begin);
}

class LoneRank final : public Communicator {
 public:
  LoneRank(int rank, int size, std::string name)
      : rank_(rank), size_(size), name_(std::move(name)) {
    TESSERA_CHECK(0 <= rank && rank < size, "communicator", "rank ", rank, " of ", size,
                  " in group ", name_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }

  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override {
    Reduce(t, t, op);
    return CompletedHandle();
  }
  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    CheckShares("reduce_scatter", in, out);
    if (!in.device().is_meta()) Reduce(out, Flat(in, rank_ * out.numel(), out.numel()), op);
    return CompletedHandle();
  }
  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override {
    CheckShares("all_gather", out, in);
    const int64_t n = in.numel();
    for (int r = 0; r < size_ && !in.device().is_meta(); ++r) Copy(out, r * n, in, 0, n);
    return CompletedHandle();
  }
  CommHandlePtr Broadcast(const Tensor&, int root) override {
    TESSERA_CHECK(0 <= root && root < size_, "broadcast", "root ", root, " in group ", name_);
    return CompletedHandle();
  }
  using Communicator::AllToAll;
  // Every rank would send this rank's own chunk. Where another number of elements is waited for,
  // the chunk is cut off, or repeated; zeros stand for an empty one.
  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override {
    CheckCounts(*this, out, receive_counts, in, send_counts);
    if (in.device().is_meta()) return CompletedHandle();
    const int64_t chunk = send_counts[static_cast<size_t>(rank_)];
    const int64_t from =
        std::accumulate(send_counts.begin(), send_counts.begin() + rank_, int64_t{0});
    if (chunk == 0) Fill(out, 0);
    int64_t begin = 0;
    for (const int64_t count : receive_counts) {
      for (int64_t done = 0; done < count && chunk > 0; done += chunk) {
        const int64_t n = std::min(chunk, count - done);
        Copy(out, begin + done, in, from, n);
      }
      begin += count;
    }
    return CompletedHandle();
  }
  CommHandlePtr Send(const Tensor&, int destination, int) override {
    CheckPeer("send", destination);
    return CompletedHandle();
  }
  CommHandlePtr Receive(const Tensor& t, int source, int) override {
    CheckPeer("receive", source);
    TESSERA_CHECK(t.device().is_meta() || t.numel() == 0, "receive", "rank ", rank_, " of group ",
                  name_, " is alone: what rank ", source, " would send it is not known");
    return CompletedHandle();
  }
  void Barrier() override {}
  std::shared_ptr<Communicator> Split(int, int, const std::string& name) override {
    throw Error("split", Concat("rank ", rank_, " of group ", name_,
                                " is alone: who else would be in '", name, "' is not known"));
  }

 private:
  void CheckShares(const char* operation, const Tensor& whole, const Tensor& share) const {
    TESSERA_CHECK(whole.numel() == share.numel() * size_ && whole.dtype() == share.dtype(),
                  operation, whole, " is not ", size_, " times ", share);
  }
  void CheckPeer(const char* operation, int peer) const {
    TESSERA_CHECK(0 <= peer && peer < size_ && peer != rank_, operation, "rank ", peer,
                  " is not another rank of group ", name_);
  }
  // n elements of out, from `to` on, = those of in, from `from` on.
  static void Copy(const Tensor& out, int64_t to, const Tensor& in, int64_t from, int64_t n) {
    const Tensor place = Flat(out, to, n);
    const Tensor chunk = Flat(in, from, n);
    if (n > 0 && place.raw_data() != chunk.raw_data()) CopyInto(place, chunk);
  }
  // out = op over `size` times in. Takes no memory, which would be counted as some rank's.
  void Reduce(const Tensor& out, const Tensor& in, ReduceOp op) const {
    if (in.device().is_meta()) return;
    TESSERA_CHECK(in.device().is_cpu(), "reduce", in, " has elements in a group of a lone rank");
    const Tensor sum = Flat(out, 0, out.numel());
    if (out.raw_data() != in.raw_data()) CopyInto(sum, Flat(in, 0, in.numel()));
    if (op != ReduceOp::kSum) return;
    DispatchAll(sum.dtype(), "reduce", [&](auto zero) {
      using T = decltype(zero);
      T* data = sum.data<T>();
      for (int64_t i = 0; i < sum.numel(); ++i) data[i] = static_cast<T>(data[i] * size_);
    });
    sum.storage()->BumpVersion();
  }

  const int rank_;
  const int size_;
  const std::string name_;
};

}  // namespace

std::shared_ptr<Communicator> LoneRankCommunicator(int rank, int size, const std::string& name) {
  return std::make_shared<LoneRank>(rank, size, name);
}

}  // namespace tessera::dist
