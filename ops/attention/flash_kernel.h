// SPDX-License-Identifier: Apache-2.0
// What flash_cpu.cc asks of each instruction set, and of the float64 path.
//
// Plain pointers only, since the flash_*_isa.cc include this header with instruction-set flags.
#ifndef TESSERA_OPS_ATTENTION_FLASH_KERNEL_H_
#define TESSERA_OPS_ATTENTION_FLASH_KERNEL_H_

#include <cstdint>

#include "core/cpu/every_isa.h"
#include "ops/attention/every_document.h"
#include "ops/attention/flash_cpu.h"

namespace tessera {

enum class FlashElement : uint8_t { kFloat32, kBFloat16, kFloat16 };

// Queries that one task of the forward pass takes: keys are packed once for them.
inline constexpr int64_t kFlashQueryChunk = 256;

// The passes' parts, each run by one thread; `scratch` has as many floats as is said.
struct FlashForwardKernel {
  int64_t (*scratch)(const FlashArgs& args);
  // o and lse of queries [begin, begin + count), count <= kFlashQueryChunk, of head h in row b.
  void (*run)(const FlashArgs& args, FlashElement element, FlashElement bias_element, int64_t b,
              int64_t h, int64_t begin, int64_t count, float* scratch);
};
struct FlashBackwardKernel {
  int64_t (*scratch)(const FlashArgs& args);
  // dk and dv of key/value head g in row b and dq of the heads that use it; adds to dbias.
  void (*run)(const FlashBackwardArgs& args, FlashElement element, FlashElement bias_element,
              int64_t b, int64_t g, float* scratch);
};

TESSERA_DECLARE_FOR_EVERY_ISA(extern const FlashForwardKernel kFlashForward;
                              extern const FlashBackwardKernel kFlashBackward;)

// The same parts for float64, row by row (flash_float64.cc): exact enough for gradient checks, not
// made for speed. No scratch.
void FlashForwardFloat64(const FlashArgs& args, int64_t b, int64_t h);
void FlashBackwardFloat64(const FlashBackwardArgs& args, int64_t b, int64_t g);

// ---- What all of them share: which keys a query sees, and where things stand
// ---------------------

#if defined(__CUDACC__)
#define TESSERA_FLASH_FN static __host__ __device__ __forceinline__
#else
#define TESSERA_FLASH_FN static inline __attribute__((always_inline))
#endif

// Which key/value head query head h reads.
TESSERA_FLASH_FN int64_t FlashKeyHead(const FlashArgs& args, int64_t h) {
  return args.kv_head_of != nullptr ? args.kv_head_of[h] : h / (args.heads / args.kv_heads);
}

// The place of query i of row b among the keys.
TESSERA_FLASH_FN int64_t FlashPlace(const FlashArgs& args, int64_t b, int64_t i) {
  const int64_t place = i + args.query_offset;
  return args.query_offsets == nullptr ? place : place + args.query_offsets[b];
}

// Query i of row b sees keys below this, as far as causality, prefix, window and lengths go.
TESSERA_FLASH_FN int64_t FlashKeyLimit(const FlashArgs& args, int64_t b, int64_t i) {
  int64_t limit = args.k_len;
  if (args.key_length != nullptr && args.key_length[b] < limit) limit = args.key_length[b];
  if (args.causal) {
    int64_t causal = FlashPlace(args, b, i) + 1;
    if (args.prefix_length != nullptr && args.prefix_length[b] > causal) {
      causal = args.prefix_length[b];
    }
    if (causal < limit) limit = causal;
  } else if (args.window > 0) {
    const int64_t place = FlashPlace(args, b, i);
    if (limit - place > args.window) limit = place + args.window;
  }
  return limit < 0 ? 0 : limit;
}

// The first key that a window leaves to query i of row b.
TESSERA_FLASH_FN int64_t FlashFirstKey(const FlashArgs& args, int64_t b, int64_t i) {
  if (args.window == 0) return 0;
  const int64_t first = FlashPlace(args, b, i) + 1 - args.window;
  return first < 0 ? 0 : first;
}

// Whether the documents let query i of row b see key j, where there are documents.
TESSERA_FLASH_FN bool FlashSharesDocument(const FlashArgs& args, int64_t b, int64_t i, int64_t j) {
  const int32_t document = args.key_document[b * args.k_len + j];
  return document == kEveryDocument || document == args.query_document[b * args.q_len + i];
}

// Where element (b, h, t, 0) lies.
TESSERA_FLASH_FN int64_t FlashOffset(const FlashStrides& stride, int64_t b, int64_t h, int64_t t) {
  return b * stride.batch + h * stride.head + t * stride.time;
}

// The same of keys and values, which may lie in pages.
TESSERA_FLASH_FN int64_t FlashKeyOffset(const FlashArgs& args, const FlashStrides& stride,
                                        int64_t b, int64_t g, int64_t j) {
  const FlashPages& pages = args.pages;
  if (pages.table == nullptr) return FlashOffset(stride, b, g, j);
  const int64_t page = pages.table[b * pages.pages_per_row + j / pages.page_size];
  return FlashOffset(stride, page, g, j % pages.page_size);
}

// How many of the `n` keys from j on lie in one piece.
TESSERA_FLASH_FN int64_t FlashKeyRun(const FlashArgs& args, int64_t j, int64_t n) {
  if (args.pages.table == nullptr) return n;
  const int64_t left = args.pages.page_size - j % args.pages.page_size;
  return left < n ? left : n;
}

// The index of element (b, h, i, 0) in the stream of the dropout.
TESSERA_FLASH_FN uint64_t FlashDropoutIndex(const FlashArgs& args, int64_t b, int64_t h,
                                            int64_t i) {
  const FlashDropout& d = args.dropout;
  const int64_t head = d.head_ids != nullptr ? d.head_ids[h] : d.head_begin + h;
  const int64_t heads = d.heads_total > 0 ? d.heads_total : args.heads;
  const int64_t queries = d.q_total > 0 ? d.q_total : args.q_len;
  const int64_t keys = d.k_total > 0 ? d.k_total : args.k_len;
  const int64_t row = ((d.batch_begin + b) * heads + head) * queries + d.query_begin + i;
  return static_cast<uint64_t>(row * keys + d.key_begin);
}

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_FLASH_KERNEL_H_
