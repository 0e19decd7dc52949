// SPDX-License-Identifier: Apache-2.0
// How attention finds its kernels. The arguments are those of the CPU's flash kernel: plain
// pointers, sizes and strides that any device can take.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_
#define TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_

#include <algorithm>

#include "core/dtype.h"
#include "core/kernel_table.h"
#include "ops/attention/flash_cpu.h"

namespace tessera {

using AttentionArgs = FlashArgs;
using AttentionGradArgs = FlashBackwardArgs;

// Of one product of scores or of values, and of queries, keys, values and outputs. Causal queries
// see half of the square at the end of their keys; other masks are taken to leave everything.
inline KernelWork AttentionWork(const FlashArgs& args, double products) {
  const auto q = static_cast<double>(args.q_len);
  const auto k = static_cast<double>(args.k_len);
  double pairs = q * k;
  if (args.causal && args.q_len <= args.k_len) pairs -= q * (q - 1) / 2;
  const int64_t queries = args.batch * args.heads * args.q_len * args.head_dim;
  const int64_t keys = args.batch * args.kv_heads * args.k_len * args.head_dim;
  return {
      .flops = products * 2 * static_cast<double>(args.batch * args.heads * args.head_dim) * pairs,
      .bytes = BytesOfElements(args.dtype, 2 * queries + 2 * keys),
      .products = args.dtype};
}
inline KernelWork WorkOf(const FlashArgs& args) { return AttentionWork(args, 2); }
// Scores again, and four products of gradients; twice as many operands.
inline KernelWork WorkOf(const FlashBackwardArgs& args) {
  KernelWork work = AttentionWork(args.forward, 5);
  work.bytes *= 2;
  return work;
}

inline KernelTable<AttentionArgs> attention_forward{"attention"};
inline KernelTable<AttentionGradArgs> attention_backward{"attention gradient"};

// Workspace of our own backward kernels on the GPU: [B, H, Tq] sums of o * do, in float32 (float64
// for float64).
inline size_t AttentionDeltaBytes(const AttentionGradArgs& args) {
  const FlashArgs& f = args.forward;
  return static_cast<size_t>(f.batch * f.heads * f.q_len) * (f.dtype == DType::kFloat64 ? 8 : 4);
}

// Decoding on the GPU: few queries, of all heads that read the same keys together, over keys and
// values that are read by 16 bytes. It goes over the keys in chunks of so many.
inline constexpr int kDecodeChunk = 128;
inline constexpr int kMostDecodeFeatures = 256;

// Whether the shape is one of those, with operands that begin at multiples of 16 bytes. Beyond 16
// queries products take longer than the reading: tensor cores are for those.
inline bool IsDecoding(const AttentionArgs& args) {
  const auto whole = [&](int64_t elements) {
    return elements * static_cast<int64_t>(DTypeSize(args.dtype)) % 16 == 0;
  };
  const auto lies = [&](const FlashStrides& s) {
    return whole(s.batch) && whole(s.head) && whole(s.time);
  };
  return args.kv_heads > 0 && args.q_len * (args.heads / args.kv_heads) <= 16 &&
         (IsHalf(args.dtype) || args.dtype == DType::kFloat32) && args.head_dim > 0 &&
         args.head_dim <= kMostDecodeFeatures && whole(args.head_dim) && lies(args.k_stride) &&
         lies(args.v_stride) && args.dropout.p == 0.0f && args.softcap == 0 && args.batch < 65536 &&
         args.heads < 65536;
}
inline int64_t DecodeChunks(const AttentionArgs& args) {
  return std::max<int64_t>(1, (args.k_len + kDecodeChunk - 1) / kDecodeChunk);
}
// Its workspace: of every query and chunk, where there are several, the sums of values, the
// greatest score and the sum of exponentials.
inline size_t DecodePartialBytes(const AttentionArgs& args) {
  if (!IsDecoding(args) || DecodeChunks(args) == 1) return 0;
  const int64_t partials = args.batch * args.heads * args.q_len * DecodeChunks(args);
  return static_cast<size_t>(partials * (args.head_dim + 2)) * sizeof(float);
}

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_KERNEL_H_
