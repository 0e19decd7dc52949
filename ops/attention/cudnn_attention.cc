// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/cudnn_attention.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/allocator.h"
#include "core/cuda/contest.h"
#include "core/cuda/cudnn.h"
#include "core/cuda/runtime.h"
#include "core/cuda/stream.h"
#include "core/device_graph.h"
#include "core/raw_kernels.h"
#include "ops/attention/attention_agreement.h"
#include "ops/attention/attention_choice.h"
#include "ops/attention/cudnn_plan.h"
#include "ops/attention/sdpa_graph.h"

namespace tessera::cuda {
namespace {

constexpr char kName[] = "attention";
// Elements of a result that are compared, at most.
constexpr int64_t kMostCompared = int64_t{1} << 24;

void Say(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

AttentionChoices& Choices() {
  static auto* choices = new AttentionChoices(Say);
  return *choices;
}

// ---- Plans

struct Plan {
  CudnnPlan plan;
  int64_t rows;               // of the batch, that it computes at once
  std::vector<int64_t> uids;  // of the tensors that are not virtual
};

class Plans {
 public:
  static Plans& Get() {
    static auto* plans = new Plans;
    return *plans;
  }
  std::shared_ptr<const Plan> Find(const SdpaShape& shape) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = plans_.find(shape);
    return found == plans_.end() ? nullptr : found->second;
  }
  Status Build(const SdpaShape& shape) {
    if (Find(shape) != nullptr) return OkStatus();
    if (!Cudnn::Find().ok()) return Cudnn::Find().status();
    const size_t limit = CudnnWorkspaceLimit();
    SdpaShape part = shape;
    part.batch = SdpaRowsAtOnce(shape, limit);
    if (part.batch == 0) {
      Say(Concat("attention: cuDNN is not used for ", shape.ToString(),
                 ": it would keep more than ", limit >> 20, " MiB for one row of the batch"));
      return Internal("one row of the batch needs more than ", limit, " bytes of workspace");
    }
    const OperationGraph graph = shape.backward ? SdpaBackwardGraph(part) : SdpaForwardGraph(part);
    TESSERA_ASSIGN_OR_RETURN(const CudnnDescriptor device, CudnnPropertiesOfActiveDevice());
    TESSERA_ASSIGN_OR_RETURN(CudnnPlan built, CudnnPlan::Build(graph, device, limit));
    auto plan = std::make_shared<Plan>(Plan{std::move(built), part.batch, {}});
    for (const GraphTensor& t : graph.tensors) {
      if (t.place != GraphTensor::Place::kVirtual) plan->uids.push_back(t.uid);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    plans_.emplace(shape, std::move(plan));
    return OkStatus();
  }

 private:
  std::mutex mutex_;
  std::map<SdpaShape, std::shared_ptr<const Plan>> plans_;
};

// What the graphs' tensors are in one call.
struct Operands {
  const FlashArgs& forward;
  const FlashBackwardArgs* backward = nullptr;
  float* delta = nullptr;
};

// Rows of the batch from `row` on, as many as the plan computes.
Status RunPart(const Plan& plan, const SdpaShape& shape, const Operands& operands, int64_t row,
               void* workspace) {
  const FlashArgs& f = operands.forward;
  const FlashBackwardArgs* b = operands.backward;
  const auto at = [&](const void* data, const FlashStrides& stride) -> const void* {
    const auto size = static_cast<int64_t>(DTypeSize(shape.dtype));
    return static_cast<const char*>(data) + row * stride.batch * size;
  };
  const int64_t stats = row * shape.heads * shape.q_len;
  const auto scale = static_cast<float>(f.scale);
  const auto offset = static_cast<int32_t>(shape.query_offset);
  const float minus_inf = -std::numeric_limits<float>::infinity();
  const float one = 1.0f;
  std::vector<const void*> pointers;
  for (const int64_t uid : plan.uids) {
    const void* pointer = nullptr;
    switch (uid) {
      case SdpaUid::kQ:
        pointer = at(f.q, f.q_stride);
        break;
      case SdpaUid::kK:
        pointer = at(f.k, f.k_stride);
        break;
      case SdpaUid::kV:
        pointer = at(f.v, f.v_stride);
        break;
      case SdpaUid::kO:
        pointer = at(f.o, f.o_stride);
        break;
      case SdpaUid::kLse:
        pointer = static_cast<const float*>(f.lse) + stats;
        break;
      case SdpaUid::kScale:
        pointer = &scale;
        break;
      case SdpaUid::kMinusInf:
        pointer = &minus_inf;
        break;
      case SdpaUid::kOffset:
        pointer = &offset;
        break;
      case SdpaUid::kDO:
        pointer = at(b->d_o, b->d_o_stride);
        break;
      case SdpaUid::kDelta:
        pointer = operands.delta + stats;
        break;
      case SdpaUid::kOne:
        pointer = &one;
        break;
      case SdpaUid::kDQ:
        pointer = at(b->dq, b->dq_stride);
        break;
      case SdpaUid::kDK:
        pointer = at(b->dk, b->dk_stride);
        break;
      case SdpaUid::kDV:
        pointer = at(b->dv, b->dv_stride);
        break;
      default:
        return Internal("no operand ", uid);
    }
    pointers.push_back(pointer);
  }
  return plan.plan.Run(plan.uids, pointers, workspace);
}

Status Run(const Plan& plan, const SdpaShape& shape, const Operands& operands) {
  const Workspace workspace(plan.plan.workspace_bytes());
  for (int64_t row = 0; row < shape.batch; row += plan.rows) {
    TESSERA_RETURN_IF_ERROR(
        RunPart(plan, shape, operands, std::min(row, shape.batch - plan.rows), workspace.data()));
  }
  return OkStatus();
}

// ---- Comparing

// One output of a call: [batch, heads, time, dim], or the log-sum-exp, [batch, heads, time].
struct Output {
  const char* name;
  void* data;
  FlashStrides stride;
  int64_t heads;
  int64_t time;
};

bool IsLse(const Output& output) { return std::string_view(output.name) == "lse"; }

// Not a number everywhere, so that what is not written afterwards shows.
void Spoil(const SdpaShape& s, const Output& output) {
  const Device device = Device::Cuda(s.device);
  const bool lse = IsLse(output);
  fill_kernel.For(device)({{output.data, lse ? DType::kFloat32 : s.dtype, device,
                            Shape{s.batch, output.heads, output.time, lse ? 1 : s.head_dim},
                            Shape{output.stride.batch, output.stride.head, output.stride.time, 1}},
                           std::numeric_limits<double>::quiet_NaN()});
}

// Every n-th batch row of an output, and the last, packed, on the host. Waits for the GPU.
std::vector<char> Sample(const SdpaShape& s, const Output& output) {
  const bool lse = IsLse(output);
  const int64_t row = lse ? 1 : s.head_dim;
  const auto size = static_cast<int64_t>(lse ? sizeof(float) : DTypeSize(s.dtype));
  const int64_t per_batch = output.heads * output.time * row;
  const int64_t most = std::max<int64_t>(1, kMostCompared / per_batch);
  const int64_t step = (s.batch + most - 1) / most;
  const int64_t span =
      (output.heads - 1) * output.stride.head + (output.time - 1) * output.stride.time + row;
  std::vector<char> found;
  std::vector<char> raw(static_cast<size_t>(span * size));
  for (int64_t b = s.batch - 1; b >= 0; b -= step) {
    const char* from = static_cast<const char*>(output.data) + b * output.stride.batch * size;
    CheckCuda(
        cudaMemcpyAsync(raw.data(), from, raw.size(), cudaMemcpyDeviceToHost, CurrentStream()),
        kName);
    SynchronizeCurrent(kName);
    for (int64_t h = 0; h < output.heads; ++h) {
      for (int64_t t = 0; t < output.time; ++t) {
        const char* at = raw.data() + (h * output.stride.head + t * output.stride.time) * size;
        found.insert(found.end(), at, at + row * size);
      }
    }
  }
  return found;
}

StatusOr<bool> SamplesAgree(const SdpaShape& s, const Output& output, const std::vector<char>& own,
                            const std::vector<char>& other) {
  if (IsLse(output)) {
    return LseAgree(reinterpret_cast<const float*>(own.data()),
                    reinterpret_cast<const float*>(other.data()),
                    static_cast<int64_t>(own.size() / sizeof(float)));
  }
  const int64_t row_bytes = s.head_dim * static_cast<int64_t>(DTypeSize(s.dtype));
  return RowsAgree(output.name, s.dtype, own.data(), other.data(),
                   static_cast<int64_t>(own.size()) / row_bytes, s.head_dim);
}

StatusOr<bool> Agree(const SdpaShape& shape, const std::vector<Output>& outputs,
                     const std::function<void()>& own, const std::function<Status()>& cudnn) {
  using Samples = std::vector<std::vector<char>>;
  const auto sample = [&] {
    Samples samples;
    for (const Output& output : outputs) samples.push_back(Sample(shape, output));
    return samples;
  };
  const auto run_cudnn = [&]() -> StatusOr<Samples> {
    for (const Output& output : outputs) Spoil(shape, output);
    TESSERA_RETURN_IF_ERROR(cudnn());
    return sample();
  };
  own();
  const Samples expected = sample();
  TESSERA_ASSIGN_OR_RETURN(const Samples found, run_cudnn());
  bool all = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const bool agree,
                             SamplesAgree(shape, outputs[i], expected[i], found[i]));
    all = all && agree;
  }
  TESSERA_ASSIGN_OR_RETURN(const Samples again, run_cudnn());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (found[i] != again[i]) {
      return Internal(outputs[i].name, " has other bits when it is computed again");
    }
  }
  return all;
}

void RunChosen(SdpaShape shape, const Operands& operands, const std::vector<Output>& outputs,
               const std::function<void()>& own) {
  shape.device = ActiveDevice();
  const auto cudnn = [&]() -> Status {
    const std::shared_ptr<const Plan> plan = Plans::Get().Find(shape);
    if (plan == nullptr) return Internal("no plan");
    try {
      return Run(*plan, shape, operands);
    } catch (const OutOfMemoryError& error) {
      return Internal("no room for its workspace: ", error.detail());
    }
  };
  std::vector<double> times;  // of our own kernel and of cuDNN's
  const AttentionTrial trial{[&] { return Plans::Get().Build(shape); },
                             [&] { return Agree(shape, outputs, own, cudnn); },
                             [&](bool by_cudnn) {
                               if (times.empty()) {
                                 times = LeastMilliseconds(2, [&](size_t contender) {
                                   if (contender == 1) return cudnn().ok();
                                   own();
                                   return true;
                                 });
                               }
                               return times[by_cudnn ? 1 : 0];
                             }};
  const AttentionKernels kernels = CurrentAttentionKernels();
  if (kernels == AttentionKernels::kOwn ||
      !Choices().Cudnn(shape, kernels, !RecordingGraph(), trial)) {
    return own();
  }
  const Status status = cudnn();
  if (status.ok()) return CountCudnnAttentionCall();
  Choices().Drop(shape, Message(status));
  own();
}

}  // namespace

void RunChosenForward(const FlashArgs& args, const std::function<void()>& own) {
  const std::optional<SdpaShape> shape = SdpaShape::Of(args);
  if (!shape) return own();
  RunChosen(*shape, {args},
            {{"o", args.o, args.o_stride, args.heads, args.q_len},
             {"lse", args.lse, {args.heads * args.q_len, args.q_len, 1}, args.heads, args.q_len}},
            own);
}

void RunChosenBackward(const FlashBackwardArgs& args, float* delta,
                       const std::function<void()>& own) {
  const std::optional<SdpaShape> shape = SdpaShape::Of(args);
  if (!shape) return own();
  const FlashArgs& f = args.forward;
  RunChosen(*shape, {f, &args, delta},
            {{"dq", args.dq, args.dq_stride, f.heads, f.q_len},
             {"dk", args.dk, args.dk_stride, f.kv_heads, f.k_len},
             {"dv", args.dv, args.dv_stride, f.kv_heads, f.k_len}},
            own);
}

}  // namespace tessera::cuda
