// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/mpi_communicator.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "dist/comm/host_operands.h"
#include "dist/comm/mpi_exchange.h"
#include "dist/comm/rank_state.h"
#include "nn/module.h"

namespace tessera::dist {
namespace {

// Up to so many bytes the root of up to 8 ranks sends to each of them itself.
constexpr int64_t kDirectBroadcastBytes = 64 << 10;

MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return Mpi().float_type;
    case DType::kFloat64:
      return Mpi().double_type;
    case DType::kInt64:
      return Mpi().int64_type;
    case DType::kInt32:
      return Mpi().int32_type;
    case DType::kUInt8:
    case DType::kBool:
      return Mpi().uint8_type;
    case DType::kBFloat16:
    case DType::kFloat16:
      return Mpi().uint16_type;  // only moved
  }
  return Mpi().byte_type;
}

MPI_Op OpOf(ReduceOp op) {
  if (op == ReduceOp::kSum) return Mpi().op_sum;
  return op == ReduceOp::kMax ? Mpi().op_max : Mpi().op_min;
}

// An operation under way whose result may still have to be brought to where it belongs.
class MpiHandle final : public CommHandle {
 public:
  MpiHandle(std::shared_ptr<MpiRuntime> runtime, MpiOperationPtr operation, Tensor result,
            Tensor staged)
      : runtime_(std::move(runtime)),
        operation_(std::move(operation)),
        result_(std::move(result)),
        staged_(std::move(staged)),
        exceptions_(std::uncaught_exceptions()) {}

  ~MpiHandle() override {
    const bool goes_on = operation_ == nullptr || operation_->call.operation == "send";
    if (!goes_on && std::uncaught_exceptions() == exceptions_) Wait();
  }

  void Wait() override {
    if (operation_ == nullptr) return;
    runtime_->Wait(*operation_);
    operation_ = nullptr;
    if (result_.defined() && staged_.defined()) CopyInto(result_.Detach(), staged_);
    result_ = Tensor();
    staged_ = Tensor();
  }

 private:
  const std::shared_ptr<MpiRuntime> runtime_;
  MpiOperationPtr operation_;
  Tensor result_;
  Tensor staged_;
  const int exceptions_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiRuntime> runtime, std::shared_ptr<MpiGroup> group)
      : runtime_(std::move(runtime)), group_(std::move(group)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size; }
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
  using Requests = std::vector<MPI_Request>;

  // Counts the collective, and compares it with the other ranks' calls if asked to.
  Call Begin(std::string_view operation, const Tensor& t, std::string_view detail = {},
             int root = -1);
  // Ends the job where another rank sends other numbers of elements than this one waits for, if
  // asked to compare calls.
  void CompareCounts(const Call& call, const std::vector<int64_t>& receive_counts,
                     const std::vector<int64_t>& send_counts);
  template <typename StartCalls>
  CommHandlePtr Issue(Call call, std::vector<Tensor> operands, const Tensor& result,
                      const Tensor& staged, StartCalls start) {
    if (result.defined()) result.storage()->BumpVersion();  // is written from now on
    auto operation = runtime_->Issue(std::move(call), group_, std::move(operands), start);
    if (operation->done && (!result.defined() || result.is_same(staged))) return CompletedHandle();
    const bool is_elsewhere = result.defined() && !result.is_same(staged);
    return std::make_unique<MpiHandle>(runtime_, std::move(operation),
                                       is_elsewhere ? result : Tensor(),
                                       is_elsewhere ? staged : Tensor());
  }
  // piece(byte offset, count, request) for operands of at most `largest_count` elements.
  template <typename Piece>
  void InPieces(int64_t numel, DType dtype, Requests& requests, Piece piece) const {
    const int64_t largest = runtime_->options().largest_count;
    for (int64_t begin = 0; begin < numel; begin += largest) {
      requests.emplace_back();
      piece(begin * static_cast<int64_t>(DTypeSize(dtype)),
            static_cast<int>(std::min(largest, numel - begin)), &requests.back());
    }
  }
  // Of the collective with this number.
  ExchangeGroup Direct(int64_t number) const {
    return {group_->side, group_->rank, group_->size, ExchangeTag(number)};
  }
  ElementType Element(DType dtype) const {
    return {TypeOf(dtype), static_cast<int64_t>(DTypeSize(dtype)),
            runtime_->options().largest_count};
  }
  bool IsAlone(const Tensor& t) const { return size() == 1 || t.numel() == 0; }

  const std::shared_ptr<MpiRuntime> runtime_;
  const std::shared_ptr<MpiGroup> group_;
};

Call MpiCommunicator::Begin(std::string_view operation, const Tensor& t, std::string_view detail,
                            int root) {
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
  runtime_->CheckContract(call, group_);
  return call;
}

CommHandlePtr MpiCommunicator::AllReduce(const Tensor& t, ReduceOp op) {
  CheckOperands("all_reduce", t, t);
  CheckReducible("all_reduce", t.dtype(), op);
  if (t.device().is_meta()) return CompletedHandle();
  Call call = Begin("all_reduce", t, ReduceOpName(op));
  if (IsAlone(t)) return CompletedHandle();
  const DType wide = ReductionDType(t.dtype());
  const Tensor sum = Staged(t, wide);
  const int64_t number = call.number;
  if (size() <= kMostRanks) {
    return Issue(
        std::move(call), {t, sum}, t, sum.storage() == t.storage() ? t : sum, [&](Requests&) {
          return ReduceEverywhere(Direct(number), Bytes(sum), t.numel(), Element(wide), OpOf(op));
        });
  }
  return Issue(std::move(call), {t, sum}, t, sum.storage() == t.storage() ? t : sum,
               [&](Requests& requests) {
                 char* data = Bytes(sum);
                 InPieces(t.numel(), wide, requests, [&](int64_t at, int n, MPI_Request* request) {
                   Mpi().Iallreduce(MPI_IN_PLACE, data + at, n, TypeOf(wide), OpOf(op),
                                    group_->comm, request);
                 });
               });
}

CommHandlePtr MpiCommunicator::ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) {
  CheckOperands("reduce_scatter", in, out);
  CheckReducible("reduce_scatter", in.dtype(), op);
  CheckParts("reduce_scatter", *this, in, out);
  if (in.device().is_meta()) return CompletedHandle();
  Call call = Begin("reduce_scatter", in, ReduceOpName(op));
  if (IsAlone(in)) {
    CopyInto(Flat(out), Flat(in));
    return CompletedHandle();
  }
  const DType wide = ReductionDType(in.dtype());
  const Tensor whole = Staged(in, wide);
  const bool direct = out.device().is_cpu() && out.dtype() == wide;
  const Tensor part = direct ? out : Empty(out.shape(), wide);
  const int64_t number = call.number;
  if (size() <= kMostRanks) {
    return Issue(std::move(call), {out, whole, part}, out, part, [&](Requests&) {
      return ReduceChunks(Direct(number), Bytes(part), Bytes(whole), out.numel(), Element(wide),
                          OpOf(op));
    });
  }
  return Issue(std::move(call), {out, whole, part}, out, part, [&](Requests& requests) {
    const int64_t n = out.numel();
    if (n <= runtime_->options().largest_count) {
      requests.emplace_back();
      Mpi().Ireduce_scatter_block(Bytes(whole), Bytes(part), static_cast<int>(n), TypeOf(wide),
                                  OpOf(op), group_->comm, &requests.back());
      return;
    }
    const int64_t bytes = n * static_cast<int64_t>(DTypeSize(wide));
    for (int r = 0; r < size(); ++r) {
      InPieces(n, wide, requests, [&](int64_t at, int count, MPI_Request* request) {
        Mpi().Ireduce(Bytes(whole) + r * bytes + at, r == rank() ? Bytes(part) + at : nullptr,
                      count, TypeOf(wide), OpOf(op), r, group_->comm, request);
      });
    }
  });
}

CommHandlePtr MpiCommunicator::AllGather(const Tensor& out, const Tensor& in) {
  CheckOperands("all_gather", out, in);
  CheckParts("all_gather", *this, out, in);
  if (in.device().is_meta()) return CompletedHandle();
  Call call = Begin("all_gather", in);
  if (IsAlone(in)) {
    CopyInto(Flat(out), Flat(in));
    return CompletedHandle();
  }
  const Tensor part = Staged(in, in.dtype());
  const Tensor whole = out.device().is_cpu() ? out : Empty(out.shape(), out.dtype());
  const int64_t number = call.number;
  return Issue(std::move(call), {out, whole, part}, out, whole, [&](Requests& requests) {
    const int64_t n = in.numel();
    if (size() <= kMostRanks || n > runtime_->options().largest_count) {
      const std::vector<int64_t> counts(static_cast<size_t>(size()), n);
      // Every rank gets the same elements.
      const Chunks same{counts, std::vector<int64_t>(counts.size(), 0)};
      StartChunkExchange(Direct(number), Bytes(whole), {counts, ChunkBegins(counts)}, Bytes(part),
                         same, Element(in.dtype()), requests);
      return;
    }
    const MPI_Datatype type = TypeOf(in.dtype());
    const int count = static_cast<int>(n);
    const bool in_place = Bytes(part) == Bytes(whole) + rank() * in.nbytes();
    requests.emplace_back();
    Mpi().Iallgather(in_place ? MPI_IN_PLACE : Bytes(part), count, type, Bytes(whole), count, type,
                     group_->comm, &requests.back());
  });
}

CommHandlePtr MpiCommunicator::Broadcast(const Tensor& t, int root) {
  CheckOperands("broadcast", t, t);
  CheckRoot("broadcast", *this, root);
  if (t.device().is_meta()) return CompletedHandle();
  Call call = Begin("broadcast", t, {}, root);
  if (IsAlone(t)) return CompletedHandle();
  const Tensor host = Staged(t, t.dtype());
  const Tensor result = rank() == root ? Tensor() : t;
  const int64_t number = call.number;
  const bool is_direct = size() == 2 || (size() <= 8 && t.nbytes() <= kDirectBroadcastBytes);
  return Issue(
      std::move(call), {t, host}, result, host.storage() == t.storage() ? t : host,
      [&](Requests& requests) {
        if (is_direct) {
          StartBroadcast(Direct(number), Bytes(host), root, t.numel(), Element(t.dtype()),
                         requests);
          return;
        }
        InPieces(t.numel(), t.dtype(), requests, [&](int64_t at, int n, MPI_Request* request) {
          Mpi().Ibcast(Bytes(host) + at, n, TypeOf(t.dtype()), root, group_->comm, request);
        });
      });
}

void MpiCommunicator::CompareCounts(const Call& call, const std::vector<int64_t>& receive_counts,
                                    const std::vector<int64_t>& send_counts) {
  if (!runtime_->options().check_collectives || size() == 1) return;
  std::vector<int64_t> sent(receive_counts.size());
  const auto exchange = runtime_->Issue(call, group_, {}, [&](Requests& requests) {
    requests.emplace_back();
    Mpi().Ialltoall(send_counts.data(), 1, Mpi().int64_type, sent.data(), 1, Mpi().int64_type,
                    group_->side, &requests.back());
  });
  runtime_->Wait(*exchange);
  for (size_t r = 0; r < sent.size(); ++r) {
    if (sent[r] == receive_counts[r]) continue;
    runtime_->FailJob(
        Concat("counts differ in group ", name(), ": ", RankList({group_->world[r]}), " sends ",
               sent[r], " elements to ", RankList({group_->world[static_cast<size_t>(rank())]}),
               ", which waits for ", receive_counts[r], " in ", DescribeCall(call, name())));
  }
}

// The ranks' messages go directly between them, however many there are: no rank knows the others'
// counts, so that the ranks could not agree on another way.
CommHandlePtr MpiCommunicator::AllToAll(const Tensor& out,
                                        const std::vector<int64_t>& receive_counts,
                                        const Tensor& in, const std::vector<int64_t>& send_counts) {
  CheckOperands("all_to_all", out, in);
  CheckCounts(*this, out, receive_counts, in, send_counts);
  if (in.device().is_meta()) return CompletedHandle();
  Call call = Begin("all_to_all", in);
  CompareCounts(call, receive_counts, send_counts);
  if (size() == 1) {
    CopyInto(Flat(out), Flat(in));
    return CompletedHandle();
  }
  const Tensor source = Staged(in, in.dtype());
  const Tensor target = out.device().is_cpu() ? out : Empty(out.shape(), out.dtype());
  const int64_t number = call.number;
  return Issue(std::move(call), {out, source, target}, out, target, [&](Requests& requests) {
    StartChunkExchange(Direct(number), Bytes(target), {receive_counts, ChunkBegins(receive_counts)},
                       Bytes(source), {send_counts, ChunkBegins(send_counts)}, Element(in.dtype()),
                       requests);
  });
}

CommHandlePtr MpiCommunicator::Send(const Tensor& t, int destination, int tag) {
  CheckOperands("send", t, t);
  CheckPeer("send", *this, destination, tag);
  if (t.device().is_meta() || t.numel() == 0) return CompletedHandle();
  Call call;
  call.operation = "send";
  call.dtype = t.dtype();
  call.count = t.numel();
  call.peer = destination;
  call.tag = tag;
  call.module = nn::CurrentModulePath();
  const Tensor host = Staged(t, t.dtype());
  return Issue(std::move(call), {t, host}, Tensor(), Tensor(), [&](Requests& requests) {
    InPieces(t.numel(), t.dtype(), requests, [&](int64_t at, int n, MPI_Request* request) {
      Mpi().Isend(Bytes(host) + at, n, TypeOf(t.dtype()), destination, tag, group_->comm, request);
    });
  });
}

CommHandlePtr MpiCommunicator::Receive(const Tensor& t, int source, int tag) {
  CheckOperands("receive", t, t);
  CheckPeer("receive", *this, source, tag);
  if (t.device().is_meta() || t.numel() == 0) return CompletedHandle();
  Call call;
  call.operation = "receive";
  call.dtype = t.dtype();
  call.count = t.numel();
  call.peer = source;
  call.tag = tag;
  call.module = nn::CurrentModulePath();
  const Tensor host = t.device().is_cpu() ? t : Empty(t.shape(), t.dtype());
  return Issue(std::move(call), {t, host}, t, host, [&](Requests& requests) {
    InPieces(t.numel(), t.dtype(), requests, [&](int64_t at, int n, MPI_Request* request) {
      Mpi().Irecv(Bytes(host) + at, n, TypeOf(t.dtype()), source, tag, group_->comm, request);
    });
  });
}

void MpiCommunicator::Barrier() {
  Call call = Begin("barrier", Tensor());
  if (size() == 1) return;
  Issue(std::move(call), {}, Tensor(), Tensor(), [&](Requests& requests) {
    requests.emplace_back();
    Mpi().Ibarrier(group_->comm, &requests.back());
  })->Wait();
}

std::shared_ptr<Communicator> MpiCommunicator::Split(int color, int key, const std::string& name) {
  TESSERA_CHECK(color >= 0, "split", "color ", color, " is negative");
  return std::make_shared<MpiCommunicator>(runtime_, runtime_->Split(group_, color, key, name));
}

}  // namespace

std::shared_ptr<Communicator> MpiWorldCommunicator(std::shared_ptr<MpiRuntime> runtime) {
  auto world = runtime->world();
  return std::make_shared<MpiCommunicator>(std::move(runtime), std::move(world));
}

}  // namespace tessera::dist
