// SPDX-License-Identifier: Apache-2.0
// Which kernels attention runs on the GPU: cuDNN's where it is chosen
// (ops/attention/cudnn_attention.h), of our own those of decoding for few queries, flash on tensor
// cores where the operands allow it, otherwise the plain ones, which alone cap scores.
#include "ops/attention/attention_cuda.h"

#include "core/cuda/allocator.h"
#include "core/cuda/runtime.h"
#include "core/dtype.h"
#include "ops/attention/cudnn_attention.h"

namespace tessera::cuda {
namespace {

constexpr char kName[] = "attention";
// Of our own kernels, which add two in an int.
constexpr int64_t kMostPositions = 1073741824;

bool Aligned(const void* data, const FlashStrides& stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride.batch % 8 == 0 &&
         stride.head % 8 == 0 && stride.time % 8 == 0;
}

bool TakesDecoding(const FlashArgs& args) {
  return IsDecoding(args) && Aligned(args.k, {}) && Aligned(args.v, {});
}

bool TakesFlash(const FlashArgs& args) {
  return args.softcap == 0 && IsHalf(args.dtype) && args.head_dim % 8 == 0 &&
         args.head_dim <= 128 && args.batch < 65536 && args.heads < 65536 &&
         Aligned(args.q, args.q_stride) && Aligned(args.k, args.k_stride) &&
         Aligned(args.v, args.v_stride) && Aligned(args.o, args.o_stride);
}

bool TakesFlash(const FlashBackwardArgs& args) {
  return TakesFlash(args.forward) && Aligned(args.d_o, args.d_o_stride) &&
         Aligned(args.dq, args.dq_stride) && Aligned(args.dk, args.dk_stride) &&
         Aligned(args.dv, args.dv_stride);
}

void Check(const FlashArgs& args) {
  TESSERA_CHECK(args.kv_head_of == nullptr && args.dropout.head_ids == nullptr, kName,
                "tables of heads are the CPU's alone");
  TESSERA_CHECK(args.q_len < kMostPositions && args.k_len < kMostPositions, kName, "more than ",
                kMostPositions, " positions");
  TESSERA_CHECK(args.prefix_length == nullptr || args.causal, kName,
                "a prefix length needs the causal mask");
  TESSERA_CHECK(args.bias == nullptr ||
                    (args.bias_dtype == DType::kFloat64) == (args.dtype == DType::kFloat64),
                kName, "a bias of ", args.bias_dtype, " does not go with ", args.dtype);
}

void ForwardCuda(const AttentionArgs& args) {
  Check(args);
  if (args.batch * args.heads * args.q_len == 0) return;
  if (args.softcap > 0) return RunPlainForward(args);
  const Workspace partials(DecodePartialBytes(args));
  RunChosenForward(args, [&] {
    if (TakesDecoding(args)) {
      RunDecodeForward(args, partials.as<float>());
    } else if (TakesFlash(args)) {
      RunFlashForward(args);
    } else {
      RunPlainForward(args);
    }
  });
}

void BackwardCuda(const AttentionGradArgs& args) {
  const FlashArgs& f = args.forward;
  Check(f);
  if (f.batch * f.heads == 0) return;
  const Workspace delta(AttentionDeltaBytes(args));
  if (TakesFlash(args)) {
    RunChosenBackward(args, delta.as<float>(), [&] {
      if (f.q_len > 0) RunDelta(args, delta.data());
      RunFlashBackward(args, delta.as<float>());
    });
  } else {
    if (f.q_len > 0) RunDelta(args, delta.data());
    RunPlainBackward(args, delta.data());
  }
  if (args.dbias != nullptr) RunBiasGradient(args, delta.data());
}

TESSERA_REGISTER_KERNEL(attention_forward, DeviceType::kCuda, ForwardCuda);
TESSERA_REGISTER_KERNEL(attention_backward, DeviceType::kCuda, BackwardCuda);

}  // namespace
}  // namespace tessera::cuda
