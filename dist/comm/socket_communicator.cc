// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/socket_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/combine_elements.h"
#include "dist/comm/host_operands.h"
#include "nn/module.h"

namespace tessera::dist {
namespace {

using Operation = SocketMesh::Operation;

// Parts of a collective.
constexpr int kContract = 0;
constexpr int kFirst = 1;
constexpr int kSecond = 2;

// Carries out a group's collectives, one after the other.
class Worker {
 public:
  ~Worker() {
    if (!thread_.joinable()) return;
    Push(nullptr);
    thread_.join();
  }
  void Push(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  }

 private:
  void Run() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (!task) return;
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

// The frame with this key from the group's rank r, of so many bytes (-1: any number).
Frame Expect(SocketMesh& mesh, const SocketGroup& group, const Call& call, const FrameKey& key,
             int r, int64_t place, int64_t bytes) {
  const int from = group.world[static_cast<size_t>(r)];
  Frame frame = mesh.Take(from, key, place);
  if (bytes >= 0 && frame.bytes != bytes) {
    mesh.FailJob(Concat("messages differ in group ", group.name, ": ", RankList({from}), " sent ",
                        frame.bytes, " bytes, but ", RankList({mesh.rank()}), " is in ",
                        DescribeCall(call, group.name), ", ", bytes, " bytes"));
  }
  return frame;
}

// Waits for an operation and brings its result to where it belongs.
class SocketHandle final : public CommHandle {
 public:
  SocketHandle(std::shared_ptr<SocketMesh> mesh, std::shared_ptr<Operation> operation,
               std::function<void()> finish)
      : mesh_(std::move(mesh)),
        operation_(std::move(operation)),
        finish_(std::move(finish)),
        exceptions_(std::uncaught_exceptions()) {}
  ~SocketHandle() override {
    if (std::uncaught_exceptions() == exceptions_) Wait();
  }

  void Wait() override {
    if (operation_ == nullptr) return;
    mesh_->Wait(*std::exchange(operation_, nullptr));
    if (finish_) std::exchange(finish_, nullptr)();
  }

 private:
  const std::shared_ptr<SocketMesh> mesh_;
  std::shared_ptr<Operation> operation_;
  std::function<void()> finish_;
  const int exceptions_;
};

class SocketCommunicator final : public Communicator {
 public:
  SocketCommunicator(std::shared_ptr<SocketMesh> mesh, std::shared_ptr<SocketGroup> group)
      : mesh_(std::move(mesh)), group_(std::move(group)) {
    mesh_->Remember(group_);
  }

  int rank() const override { return group_->rank; }
  int size() const override { return static_cast<int>(group_->world.size()); }
  const std::string& name() const override { return group_->name; }

  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override;
  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override;
  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override;
  CommHandlePtr Broadcast(const Tensor& t, int root) override;
  using Communicator::AllToAll;
  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override;
  CommHandlePtr Send(const Tensor& t, int destination, int tag) override;
  CommHandlePtr Receive(const Tensor& t, int source, int tag) override;
  void Barrier() override;
  std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) override;

 private:
  // Counts the collective, and compares it with the other ranks' calls if asked to.
  Call BeginCall(std::string_view operation, const Tensor& t, std::string_view detail = {},
                 int root = -1);
  Call MessageCall(std::string_view operation, const Tensor& t, int peer, int tag) const;
  // Runs `body` on the group's thread. `operands` stay alive until it is done; `staged` then
  // belongs into `result`.
  CommHandlePtr Issue(const Call& call, const Tensor& result, const Tensor& staged,
                      std::vector<Tensor> operands, std::function<void()> body);
  bool IsAlone(const Tensor& t) const { return size() == 1 || t.numel() == 0; }

  int WorldRank(int r) const { return group_->world[static_cast<size_t>(r)]; }
  void SendPart(const Call& call, int part, int r, const void* data, int64_t bytes) {
    mesh_->Send(WorldRank(r), {group_->id, call.number, part}, data, bytes);
  }
  void TakePart(const Call& call, int part, int r, void* data, int64_t bytes);
  Frame ExpectPart(const Call& call, int part, int r, int64_t bytes) {
    return Expect(*mesh_, *group_, call, {group_->id, call.number, part}, r, 0, bytes);
  }
  std::vector<std::string> ExchangeTexts(const Call& call, int part, const std::string& mine);
  template <typename Body>
  void ForOthers(Body body) const {
    // Each begins with the rank behind it, so that not all talk to the same one.
    for (int i = 1; i < size(); ++i) body((rank() + i) % size());
  }
  // into = op over ranks of each rank's `in`, in the order of the ranks; the others' have come as
  // frames of `part`.
  void Reduce(const Call& call, int part, DType dtype, char* into, const char* own, int64_t count,
              ReduceOp op);

  const std::shared_ptr<SocketMesh> mesh_;
  const std::shared_ptr<SocketGroup> group_;
  Worker worker_;
};

Call SocketCommunicator::BeginCall(std::string_view operation, const Tensor& t,
                                   std::string_view detail, int root) {
  Call call;
  call.operation = operation;
  call.detail = detail;
  if (t.defined()) {
    call.dtype = t.dtype();
    call.count = t.numel();
  }
  call.peer = root;
  call.module = nn::CurrentModulePath();
  call.number = ++group_->calls;
  if (!mesh_->options().check_collectives || size() == 1) return call;
  const auto under_way = mesh_->Begin(call, group_, /*is_waited=*/true);
  const std::vector<std::string> calls = ExchangeTexts(
      call, kContract,
      Concat(DescribeContract(call), call.module.empty() ? " outside of any module" : " in module ",
             call.module));
  mesh_->Finish(*under_way);
  if (std::all_of(calls.begin(), calls.end(), [&](const auto& c) { return c == calls[0]; })) {
    return call;
  }
  // The lowest rank speaks; the others wait for the end.
  if (rank() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  mesh_->FailJob(DescribeMismatch(name(), group_->world, calls));
}

Call SocketCommunicator::MessageCall(std::string_view operation, const Tensor& t, int peer,
                                     int tag) const {
  Call call;
  call.operation = operation;
  call.dtype = t.dtype();
  call.count = t.numel();
  call.peer = peer;
  call.tag = tag;
  call.module = nn::CurrentModulePath();
  return call;
}

CommHandlePtr SocketCommunicator::Issue(const Call& call, const Tensor& result,
                                        const Tensor& staged, std::vector<Tensor> operands,
                                        std::function<void()> body) {
  if (result.defined()) result.storage()->BumpVersion();  // is written from now on
  auto operation = mesh_->Begin(call, group_);
  worker_.Push([mesh = mesh_.get(), operation, operands = std::move(operands),
                body = std::move(body)]() mutable {
    body();
    operands.clear();
    mesh->Finish(*operation);
  });
  std::function<void()> finish;
  if (result.defined() && !result.is_same(staged)) {
    finish = [result, staged] { CopyInto(result.Detach(), staged); };
  }
  return std::make_unique<SocketHandle>(mesh_, std::move(operation), std::move(finish));
}

void SocketCommunicator::TakePart(const Call& call, int part, int r, void* data, int64_t bytes) {
  const Frame frame = ExpectPart(call, part, r, bytes);
  if (bytes > 0) std::memcpy(data, frame.data.get(), static_cast<size_t>(bytes));
}

std::vector<std::string> SocketCommunicator::ExchangeTexts(const Call& call, int part,
                                                           const std::string& mine) {
  std::vector<std::string> all(static_cast<size_t>(size()));
  all[static_cast<size_t>(rank())] = mine;
  ForOthers([&](int r) { SendPart(call, part, r, mine.data(), std::ssize(mine)); });
  ForOthers([&](int r) {
    const Frame frame = ExpectPart(call, part, r, -1);
    all[static_cast<size_t>(r)].assign(frame.data.get(), static_cast<size_t>(frame.bytes));
  });
  return all;
}

void SocketCommunicator::Reduce(const Call& call, int part, DType dtype, char* into,
                                const char* own, int64_t count, ReduceOp op) {
  const int64_t bytes = count * static_cast<int64_t>(DTypeSize(dtype));
  Frame sum;
  for (int r = 0; r < size(); ++r) {
    Frame next;
    if (r != rank()) next = ExpectPart(call, part, r, bytes);
    const char* const values = r == rank() ? own : next.data.get();
    if (r > 0) {
      CombineElements(dtype, sum.data.get(), values, count, op);
    } else if (next.data != nullptr) {
      sum = std::move(next);
    } else {
      sum.data = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes));
      std::memcpy(sum.data.get(), values, static_cast<size_t>(bytes));
    }
  }
  std::memcpy(into, sum.data.get(), static_cast<size_t>(bytes));
}

CommHandlePtr SocketCommunicator::AllReduce(const Tensor& t, ReduceOp op) {
  CheckOperands("all_reduce", t, t);
  CheckReducible("all_reduce", t.dtype(), op);
  if (t.device().is_meta()) return CompletedHandle();
  const Call call = BeginCall("all_reduce", t, ReduceOpName(op));
  if (IsAlone(t)) return CompletedHandle();
  const DType wide = ReductionDType(t.dtype());
  const Tensor sum = Staged(t, wide);
  return Issue(call, t, sum.storage() == t.storage() ? t : sum, {t, sum}, [=, this] {
    const int64_t n = sum.numel();
    const auto bytes = static_cast<int64_t>(DTypeSize(wide));
    const auto begin = [&](int r) { return n * r / size(); };
    const auto count = [&](int r) { return begin(r + 1) - begin(r); };
    char* const data = Bytes(sum);
    ForOthers([&](int r) { SendPart(call, kFirst, r, data + begin(r) * bytes, count(r) * bytes); });
    char* const own = data + begin(rank()) * bytes;
    Reduce(call, kFirst, wide, own, own, count(rank()), op);
    ForOthers([&](int r) { SendPart(call, kSecond, r, own, count(rank()) * bytes); });
    ForOthers(
        [&](int r) { TakePart(call, kSecond, r, data + begin(r) * bytes, count(r) * bytes); });
  });
}

CommHandlePtr SocketCommunicator::ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) {
  CheckOperands("reduce_scatter", in, out);
  CheckReducible("reduce_scatter", in.dtype(), op);
  CheckParts("reduce_scatter", *this, in, out);
  if (in.device().is_meta()) return CompletedHandle();
  const Call call = BeginCall("reduce_scatter", in, ReduceOpName(op));
  if (IsAlone(in)) {
    CopyInto(Flat(out), Flat(in));
    return CompletedHandle();
  }
  const DType wide = ReductionDType(in.dtype());
  const Tensor whole = Staged(in, wide);
  const bool is_direct = out.device().is_cpu() && out.dtype() == wide;
  const Tensor part = is_direct ? out : Empty(out.shape(), wide);
  return Issue(call, out, part, {out, whole, part}, [=, this] {
    const int64_t bytes = part.numel() * static_cast<int64_t>(DTypeSize(wide));
    ForOthers([&](int r) { SendPart(call, kFirst, r, Bytes(whole) + r * bytes, bytes); });
    Reduce(call, kFirst, wide, Bytes(part), Bytes(whole) + rank() * bytes, part.numel(), op);
  });
}

CommHandlePtr SocketCommunicator::AllGather(const Tensor& out, const Tensor& in) {
  CheckOperands("all_gather", out, in);
  CheckParts("all_gather", *this, out, in);
  if (in.device().is_meta()) return CompletedHandle();
  const Call call = BeginCall("all_gather", in);
  if (IsAlone(in)) {
    CopyInto(Flat(out), Flat(in));
    return CompletedHandle();
  }
  const Tensor part = Staged(in, in.dtype());
  const Tensor whole = out.device().is_cpu() ? out : Empty(out.shape(), out.dtype());
  return Issue(call, out, whole, {out, part, whole}, [=, this] {
    const auto bytes = static_cast<int64_t>(part.nbytes());
    ForOthers([&](int r) { SendPart(call, kFirst, r, Bytes(part), bytes); });
    char* const own = Bytes(whole) + rank() * bytes;
    if (own != Bytes(part)) std::memmove(own, Bytes(part), static_cast<size_t>(bytes));
    ForOthers([&](int r) { TakePart(call, kFirst, r, Bytes(whole) + r * bytes, bytes); });
  });
}

CommHandlePtr SocketCommunicator::Broadcast(const Tensor& t, int root) {
  CheckOperands("broadcast", t, t);
  CheckRoot("broadcast", *this, root);
  if (t.device().is_meta()) return CompletedHandle();
  const Call call = BeginCall("broadcast", t, {}, root);
  if (IsAlone(t)) return CompletedHandle();
  const Tensor host = Staged(t, t.dtype());
  const Tensor result = rank() == root ? Tensor() : t;
  return Issue(call, result, host.storage() == t.storage() ? t : host, {t, host}, [=, this] {
    const auto bytes = static_cast<int64_t>(host.nbytes());
    if (rank() != root) return TakePart(call, kFirst, root, Bytes(host), bytes);
    ForOthers([&](int r) { SendPart(call, kFirst, r, Bytes(host), bytes); });
  });
}

// A chunk without elements is a frame, too, so that a rank which waits for more learns of it.
CommHandlePtr SocketCommunicator::AllToAll(const Tensor& out,
                                           const std::vector<int64_t>& receive_counts,
                                           const Tensor& in,
                                           const std::vector<int64_t>& send_counts) {
  CheckOperands("all_to_all", out, in);
  CheckCounts(*this, out, receive_counts, in, send_counts);
  if (in.device().is_meta()) return CompletedHandle();
  const Call call = BeginCall("all_to_all", in);
  if (size() == 1) {
    CopyInto(Flat(out), Flat(in));
    return CompletedHandle();
  }
  const Tensor source = Staged(in, in.dtype());
  const Tensor target = out.device().is_cpu() ? out : Empty(out.shape(), out.dtype());
  return Issue(call, out, target, {out, source, target}, [=, this] {
    const auto bytes = static_cast<int64_t>(DTypeSize(source.dtype()));
    const std::vector<int64_t> from = ChunkBegins(send_counts), to = ChunkBegins(receive_counts);
    ForOthers([&](size_t r) {
      SendPart(call, kFirst, static_cast<int>(r), Bytes(source) + from[r] * bytes,
               send_counts[r] * bytes);
    });
    const auto own = static_cast<size_t>(rank());
    if (send_counts[own] > 0) {
      std::memmove(Bytes(target) + to[own] * bytes, Bytes(source) + from[own] * bytes,
                   static_cast<size_t>(send_counts[own] * bytes));
    }
    ForOthers([&](size_t r) {
      TakePart(call, kFirst, static_cast<int>(r), Bytes(target) + to[r] * bytes,
               receive_counts[r] * bytes);
    });
  });
}

// The system takes the message, or the other rank's reader does: nothing is left to wait for.
CommHandlePtr SocketCommunicator::Send(const Tensor& t, int destination, int tag) {
  CheckOperands("send", t, t);
  CheckPeer("send", *this, destination, tag);
  if (t.device().is_meta() || t.numel() == 0) return CompletedHandle();
  const auto operation = mesh_->Begin(MessageCall("send", t, destination, tag), group_,
                                      /*is_waited=*/true);
  const Tensor host = Staged(t, t.dtype());
  mesh_->Send(WorldRank(destination), {group_->id, 0, tag}, Bytes(host),
              static_cast<int64_t>(host.nbytes()));
  mesh_->Finish(*operation);
  return CompletedHandle();
}

CommHandlePtr SocketCommunicator::Receive(const Tensor& t, int source, int tag) {
  CheckOperands("receive", t, t);
  CheckPeer("receive", *this, source, tag);
  if (t.device().is_meta() || t.numel() == 0) return CompletedHandle();
  // Messages of one source and tag are received in the order of these calls.
  class Handle final : public CommHandle {
   public:
    explicit Handle(std::function<void()> receive)
        : receive_(std::move(receive)), exceptions_(std::uncaught_exceptions()) {}
    ~Handle() override {
      if (std::uncaught_exceptions() == exceptions_) Wait();
    }
    void Wait() override {
      if (receive_) std::exchange(receive_, nullptr)();
    }

   private:
    std::function<void()> receive_;
    const int exceptions_;
  };
  t.storage()->BumpVersion();
  const Call call = MessageCall("receive", t, source, tag);
  const FrameKey key{group_->id, 0, tag};
  const int64_t place = mesh_->NextPlace(WorldRank(source), key);
  return std::make_unique<Handle>([mesh = mesh_, group = group_, call, key, place, source, t] {
    const auto operation = mesh->Begin(call, group, /*is_waited=*/true);
    const Frame frame =
        Expect(*mesh, *group, call, key, source, place, static_cast<int64_t>(t.nbytes()));
    const Tensor host = t.device().is_cpu() ? t : Empty(t.shape(), t.dtype());
    std::memcpy(Bytes(host), frame.data.get(), static_cast<size_t>(frame.bytes));
    if (!host.is_same(t)) CopyInto(t.Detach(), host);
    mesh->Finish(*operation);
  });
}

void SocketCommunicator::Barrier() {
  const Call call = BeginCall("barrier", Tensor());
  if (size() == 1) return;
  Issue(call, Tensor(), Tensor(), {}, [=, this] {
    ForOthers([&](int r) { SendPart(call, kFirst, r, nullptr, 0); });
    ForOthers([&](int r) { TakePart(call, kFirst, r, nullptr, 0); });
  })->Wait();
}

std::shared_ptr<Communicator> SocketCommunicator::Split(int color, int key,
                                                        const std::string& name) {
  TESSERA_CHECK(color >= 0, "split", "color ", color, " is negative");
  const Call call = BeginCall("split", Tensor());
  const auto operation = mesh_->Begin(call, group_, /*is_waited=*/true);
  const std::vector<std::string> all = ExchangeTexts(call, kFirst, Concat(color, " ", key));
  mesh_->Finish(*operation);
  std::vector<std::pair<int, int>> members;  // (key, rank) of this rank's color
  for (int r = 0; r < size(); ++r) {
    const std::string& text = all[static_cast<size_t>(r)];
    const size_t space = text.find(' ');
    if (std::stoi(text.substr(0, space)) != color) continue;
    members.emplace_back(std::stoi(text.substr(space + 1)), r);
  }
  std::sort(members.begin(), members.end());
  auto group = std::make_shared<SocketGroup>();
  group->name = name;
  group->id = Concat(group_->id, "/", ++group_->splits, ".", color);
  for (const auto& [order, r] : members) {
    if (r == rank()) group->rank = static_cast<int>(group->world.size());
    group->world.push_back(WorldRank(r));
  }
  return UnlessUnwinding(new SocketCommunicator(mesh_, std::move(group)));
}

}  // namespace

std::shared_ptr<Communicator> SocketWorldCommunicator(std::shared_ptr<SocketMesh> mesh) {
  auto group = std::make_shared<SocketGroup>();
  group->name = "world";
  group->id = "world";
  group->rank = mesh->rank();
  group->world.resize(static_cast<size_t>(mesh->size()));
  std::iota(group->world.begin(), group->world.end(), 0);
  return UnlessUnwinding(new SocketCommunicator(std::move(mesh), std::move(group)));
}

}  // namespace tessera::dist
