// SPDX-License-Identifier: Apache-2.0
#include "dist/comm/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"
#include "dist/comm/call.h"
#include "dist/comm/host_operands.h"
#include "dist/comm/nccl_watch.h"
#include "dist/comm/world.h"
#include "nn/module.h"

namespace tessera::dist {
namespace {

// A call is mostly taken in within microseconds; one that waits for other ranks is not.
constexpr std::chrono::microseconds kSpin{200};
constexpr std::chrono::milliseconds kBetweenLooks{1};

Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return OkStatus();
  return Internal(what, ": CUDA says: ", cudaGetErrorString(error));
}

Status CheckGpu(int device) {
  TESSERA_RETURN_IF_ERROR(cuda::CheckDevice(device));
  cuda::Activate(device);
  return OkStatus();
}

void Cuda(cudaError_t error, std::string_view operation) {
  TESSERA_CHECK(error == cudaSuccess, operation, "CUDA says: ", cudaGetErrorString(error));
}

// Waits until a nonblocking call on `comm` has been taken in.
Status Settle(ncclComm_t comm, ncclResult_t result, double timeout, std::string_view what) {
  const auto begin = std::chrono::steady_clock::now();
  const auto until = begin + std::chrono::milliseconds(int64_t(timeout * 1000));
  while (result == ncclInProgress) {
    const auto now = std::chrono::steady_clock::now();
    if (now > until) {
      return Internal(what, ": not all ranks have come within ", timeout, " s");
    }
    if (now > begin + kSpin) std::this_thread::sleep_for(kBetweenLooks);
    if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) break;
  }
  if (result == ncclSuccess) return OkStatus();
  return Internal(what, ": NCCL says: ", ncclGetErrorString(result));
}

// One NCCL communicator with its stream.
struct Channel {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::mutex in_use;  // of NcclWatch::Remember
};

// The channels of a group: collectives, messages to higher ranks, messages to lower ranks.
class NcclGroup {
 public:
  NcclGroup(std::string name, const NcclOptions& options)
      : name_(std::move(name)), options_(options) {}
  ~NcclGroup() {
    for (Channel& c : channels_) {
      if (c.comm != nullptr) NcclWatch::Instance().Forget(c.comm);
      if (c.stream != nullptr) cudaStreamSynchronize(c.stream);
      if (c.comm != nullptr) {
        const Status left =
            Settle(c.comm, ncclCommFinalize(c.comm), options_.collective_timeout, What());
        left.ok() ? ncclCommDestroy(c.comm) : ncclCommAbort(c.comm);
      }
      if (c.stream != nullptr) cudaStreamDestroy(c.stream);
    }
    if (scratch_ != nullptr) cudaFree(scratch_);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Takes the communicator of the collectives, and makes the rest from it.
  Status Complete(ncclComm_t comm) {
    channels_[0].comm = comm;
    for (size_t i = 1; i < 3; ++i) {
      ncclConfig_t config = Config();
      const ncclResult_t result = ncclCommSplit(comm, 0, 0, &channels_[i].comm, &config);
      TESSERA_RETURN_IF_ERROR(Settle(comm, result, options_.init_timeout, What()));
      TESSERA_RETURN_IF_ERROR(
          Settle(channels_[i].comm, ncclInProgress, options_.init_timeout, What()));
    }
    for (Channel& c : channels_) {
      TESSERA_RETURN_IF_ERROR(
          CudaStatus(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking), What()));
      NcclWatch::Instance().Remember(c.comm, &c.in_use);
    }
    TESSERA_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&scratch_, sizeof(float)), What()));
    ncclCommUserRank(comm, &rank_);
    ncclCommCount(comm, &size_);
    return OkStatus();
  }

  static ncclConfig_t Config() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
  }
  std::string What() const { return Concat("group ", name_, " on cuda:", options_.device); }

  const std::string& name() const { return name_; }
  const NcclOptions& options() const { return options_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Channel& collectives() { return channels_[0]; }
  Channel& messages(int from, int to) { return channels_[from < to ? 1 : 2]; }
  void* scratch() const { return scratch_; }
  int64_t NextCall() { return ++calls_; }

 private:
  const std::string name_;
  const NcclOptions options_;
  int rank_ = 0;
  int size_ = 1;
  Channel channels_[3];
  void* scratch_ = nullptr;
  std::atomic<int64_t> calls_{0};
};

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kInt64:
      return ncclInt64;
    case DType::kInt32:
      return ncclInt32;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kUInt8:
    case DType::kBool:
      return ncclUint8;
  }
  return ncclUint8;
}

ncclRedOp_t OpOf(ReduceOp op) {
  if (op == ReduceOp::kSum) return ncclSum;
  return op == ReduceOp::kMax ? ncclMax : ncclMin;
}

class NcclHandle final : public CommHandle {
 public:
  NcclHandle(std::shared_ptr<NcclGroup> group, NcclWatch::EventPtr done,
             std::vector<Tensor> operands, Tensor result, Tensor wide)
      : group_(std::move(group)),
        done_(std::move(done)),
        operands_(std::move(operands)),
        result_(std::move(result)),
        wide_(std::move(wide)) {}

  // The operands' memory must not be given away before the compute stream comes after.
  ~NcclHandle() override {
    if (done_ != nullptr) {
      cudaStreamWaitEvent(cuda::ComputeStream(group_->options().device), done_->get(), 0);
    }
  }

  void Wait() override {
    if (done_ == nullptr) return;
    cuda::Activate(group_->options().device);
    Cuda(cudaStreamWaitEvent(cuda::CurrentStream(), done_->get(), 0), "wait");
    done_ = nullptr;
    if (wide_.defined()) CopyInto(result_.Detach(), wide_);
    operands_.clear();
  }

 private:
  const std::shared_ptr<NcclGroup> group_;
  NcclWatch::EventPtr done_;
  std::vector<Tensor> operands_;
  Tensor result_;
  Tensor wide_;
};

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(std::shared_ptr<NcclGroup> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }

  CommHandlePtr AllReduce(const Tensor& t, ReduceOp op) override {
    CheckReducible("all_reduce", t, op);
    if (!Moves("all_reduce", t, t)) return CompletedHandle();
    const Tensor wide = IsHalf(t.dtype()) ? CastCopy(t, DType::kFloat32) : t;
    return Issue(Describe("all_reduce", t), group_->collectives(), {t, wide}, t, wide,
                 [&](Channel& c) {
                   return ncclAllReduce(wide.raw_data(), wide.raw_data(), Count(t),
                                        TypeOf(wide.dtype()), OpOf(op), c.comm, c.stream);
                 });
  }

  CommHandlePtr ReduceScatter(const Tensor& out, const Tensor& in, ReduceOp op) override {
    CheckReducible("reduce_scatter", in, op);
    CheckChunks("reduce_scatter", in, out);
    if (!Moves("reduce_scatter", in, out)) return CompletedHandle();
    const Tensor whole = IsHalf(in.dtype()) ? CastCopy(in, DType::kFloat32) : in;
    const Tensor part =
        IsHalf(in.dtype()) ? Empty(out.shape(), DType::kFloat32, out.device()) : out;
    return Issue(Describe("reduce_scatter", in), group_->collectives(), {out, whole, part}, out,
                 part, [&](Channel& c) {
                   return ncclReduceScatter(whole.raw_data(), part.raw_data(), Count(out),
                                            TypeOf(whole.dtype()), OpOf(op), c.comm, c.stream);
                 });
  }

  CommHandlePtr AllGather(const Tensor& out, const Tensor& in) override {
    CheckChunks("all_gather", out, in);
    if (!Moves("all_gather", in, out)) return CompletedHandle();
    return Issue(Describe("all_gather", in), group_->collectives(), {out, in}, out, out,
                 [&](Channel& c) {
                   return ncclAllGather(in.raw_data(), out.raw_data(), Count(in),
                                        TypeOf(in.dtype()), c.comm, c.stream);
                 });
  }

  CommHandlePtr Broadcast(const Tensor& t, int root) override {
    TESSERA_CHECK(root >= 0 && root < size(), "broadcast", "root ", root, " in group ", name());
    if (!Moves("broadcast", t, t)) return CompletedHandle();
    return Issue(Describe("broadcast", t), group_->collectives(), {t}, t, t, [&](Channel& c) {
      return ncclBroadcast(t.raw_data(), t.raw_data(), Count(t), TypeOf(t.dtype()), root, c.comm,
                           c.stream);
    });
  }

  using Communicator::AllToAll;
  CommHandlePtr AllToAll(const Tensor& out, const std::vector<int64_t>& receive_counts,
                         const Tensor& in, const std::vector<int64_t>& send_counts) override {
    CheckCounts(*this, out, receive_counts, in, send_counts);
    // Also where this rank sends nothing: it may still receive.
    if (!IsHere("all_to_all", in, out)) return CompletedHandle();
    return Issue(
        Describe("all_to_all", in), group_->collectives(), {out, in}, out, out, [&](Channel& c) {
          const auto bytes = static_cast<int64_t>(DTypeSize(in.dtype()));
          const auto* source = static_cast<const char*>(in.raw_data());
          auto* target = static_cast<char*>(out.raw_data());
          ncclGroupStart();
          for (int r = 0; r < size(); ++r) {
            const int64_t sent = send_counts[static_cast<size_t>(r)];
            const int64_t received = receive_counts[static_cast<size_t>(r)];
            if (sent > 0) {
              ncclSend(source, static_cast<size_t>(sent), TypeOf(in.dtype()), r, c.comm, c.stream);
            }
            if (received > 0) {
              ncclRecv(target, static_cast<size_t>(received), TypeOf(in.dtype()), r, c.comm,
                       c.stream);
            }
            source += sent * bytes;
            target += received * bytes;
          }
          return ncclGroupEnd();
        });
  }

  CommHandlePtr Send(const Tensor& t, int destination, int tag) override {
    CheckPeer("send", destination);
    if (!Moves("send", t, t)) return CompletedHandle();
    return Issue(Describe("send", t, destination, tag), group_->messages(rank(), destination), {t},
                 Tensor(), Tensor(), [&](Channel& c) {
                   return ncclSend(t.raw_data(), Count(t), TypeOf(t.dtype()), destination, c.comm,
                                   c.stream);
                 });
  }

  CommHandlePtr Receive(const Tensor& t, int source, int tag) override {
    CheckPeer("receive", source);
    if (!Moves("receive", t, t)) return CompletedHandle();
    return Issue(Describe("receive", t, source, tag), group_->messages(source, rank()), {t}, t, t,
                 [&](Channel& c) {
                   return ncclRecv(t.raw_data(), Count(t), TypeOf(t.dtype()), source, c.comm,
                                   c.stream);
                 });
  }

  void Barrier() override {
    Issue(Describe("barrier", Tensor()), group_->collectives(), {}, Tensor(), Tensor(),
          [&](Channel& c) {
            return ncclAllReduce(group_->scratch(), group_->scratch(), 1, ncclFloat32, ncclSum,
                                 c.comm, c.stream);
          })
        ->Wait();
    Cuda(cudaStreamSynchronize(group_->collectives().stream), "barrier");
  }

  std::shared_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    TESSERA_CHECK(color >= 0, "split", "color ", color, " is negative");
    auto child = std::make_shared<NcclGroup>(name, group_->options());
    ncclConfig_t config = NcclGroup::Config();
    ncclComm_t parent = group_->collectives().comm, comm = nullptr;
    const double timeout = group_->options().init_timeout;
    Status status;
    {
      const std::lock_guard<std::mutex> lock(group_->collectives().in_use);
      status =
          Settle(parent, ncclCommSplit(parent, color, key, &comm, &config), timeout, child->What());
    }
    if (status.ok()) status = Settle(comm, ncclInProgress, timeout, child->What());
    if (status.ok()) status = child->Complete(comm);
    TESSERA_CHECK(status.ok(), "split", Message(status));
    return std::make_shared<NcclCommunicator>(std::move(child));
  }

 private:
  static size_t Count(const Tensor& t) { return static_cast<size_t>(t.numel()); }

  // Whether the operands, which are as they should be, are on this rank's GPU; false for meta.
  bool IsHere(std::string_view operation, const Tensor& in, const Tensor& out) const {
    TESSERA_CHECK(in.is_contiguous() && out.is_contiguous(), operation,
                  "tensors must be contiguous");
    TESSERA_CHECK(in.dtype() == out.dtype(), operation, in, " and ", out, " differ in dtype");
    if (in.device().is_meta()) return false;
    const Device own = Device::Cuda(group_->options().device);
    TESSERA_CHECK(in.device() == own && out.device() == own, operation, in, " and ", out,
                  " must be on ", own);
    return true;
  }
  // Whether there is anything to do as well.
  bool Moves(std::string_view operation, const Tensor& in, const Tensor& out) const {
    return IsHere(operation, in, out) && in.numel() > 0;
  }
  static void CheckReducible(std::string_view operation, const Tensor& t, ReduceOp op) {
    TESSERA_CHECK(t.dtype() != DType::kBool || op != ReduceOp::kSum, operation, "bool has no sum");
  }
  void CheckChunks(std::string_view operation, const Tensor& whole, const Tensor& chunk) const {
    TESSERA_CHECK(whole.numel() == chunk.numel() * size(), operation, whole, " is not ", size(),
                  " times ", chunk);
  }
  void CheckPeer(std::string_view operation, int peer) const {
    TESSERA_CHECK(peer >= 0 && peer < size() && peer != rank(), operation, "rank ", peer,
                  " is not another rank of group ", name());
  }

  Call Describe(std::string_view operation, const Tensor& t, int peer = -1, int tag = -1) {
    Call call;
    call.operation = operation;
    if (t.defined()) {
      call.dtype = t.dtype();
      call.count = t.numel();
    }
    call.peer = peer;
    call.tag = tag;
    call.module = nn::CurrentModulePath();
    if (call.is_collective()) call.number = group_->NextCall();
    return call;
  }

  template <typename StartCall>
  CommHandlePtr Issue(const Call& call, Channel& channel, std::vector<Tensor> operands,
                      const Tensor& result, const Tensor& wide, StartCall start) {
    cuda::Activate(group_->options().device);
    auto before = NcclWatch::NewEvent();
    Cuda(cudaEventRecord(before->get(), cuda::CurrentStream()), call.operation);
    Cuda(cudaStreamWaitEvent(channel.stream, before->get(), 0), call.operation);
    Status status;
    {
      const std::lock_guard<std::mutex> lock(channel.in_use);
      status = Settle(channel.comm, start(channel), group_->options().collective_timeout,
                      call.operation);
    }
    TESSERA_CHECK(status.ok(), call.operation, Message(status));
    auto done = NcclWatch::NewEvent();
    Cuda(cudaEventRecord(done->get(), channel.stream), call.operation);
    NcclWatch::Instance().Watch(done,
                                Concat("rank ", rank(), " is in ", DescribeCall(call, name())),
                                group_->options().collective_timeout);
    if (result.defined()) result.storage()->BumpVersion();
    const bool is_cast = result.defined() && !wide.is_same(result);
    return std::make_unique<NcclHandle>(group_, std::move(done), std::move(operands), result,
                                        is_cast ? wide : Tensor());
  }

  const std::shared_ptr<NcclGroup> group_;
};

// A GPU's UUID, which no other has, be it of another machine or a part of one (MIG).
std::string UuidOf(int index) {
  cudaDeviceProp properties;
  Cuda(cudaGetDeviceProperties(&properties, index), "device properties");
  return std::string(properties.uuid.bytes, sizeof(properties.uuid.bytes));
}

StatusOr<std::shared_ptr<Communicator>> OpenForWorld(const std::string& id, const World& world,
                                                     const WorldOptions& options) {
  return OpenNccl(id, world.rank, world.size,
                  {world.device.index, options.rendezvous_timeout, options.collective_timeout});
}

const bool registered = (RegisterGpuTransport({.count = cuda::DeviceCount,
                                               .identity = UuidOf,
                                               .new_id = NewNcclId,
                                               .open = OpenForWorld}),
                         true);

}  // namespace

StatusOr<std::string> NewNcclId() {
  TESSERA_RETURN_IF_ERROR(cuda::CheckDevice(0));
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) return Internal("NCCL says: ", ncclGetErrorString(result));
  return std::string(id.internal, sizeof(id.internal));
}

StatusOr<std::shared_ptr<Communicator>> OpenNccl(const std::string& id, int rank, int size,
                                                 const NcclOptions& options) {
  static_cast<void>(registered);
  TESSERA_RETURN_IF_ERROR(CheckGpu(options.device));
  ncclUniqueId unique;
  if (id.size() != sizeof(unique.internal)) {
    return InvalidArgument("a group's id has ", sizeof(unique.internal), " bytes, not ", id.size());
  }
  std::memcpy(unique.internal, id.data(), id.size());
  auto group = std::make_shared<NcclGroup>("world", options);
  ncclConfig_t config = NcclGroup::Config();
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, size, unique, rank, &config);
  const Status status = Settle(comm, result, options.init_timeout, group->What());
  if (!status.ok()) {
    if (comm != nullptr) ncclCommAbort(comm);
    return status;
  }
  TESSERA_RETURN_IF_ERROR(group->Complete(comm));
  return std::make_shared<NcclCommunicator>(std::move(group));
}

}  // namespace tessera::dist
