// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU, on raw pointers, without ever holding a Tq x Tk matrix:
//
//   S = scale Q K^T + bias, masked;  P = softmax(S) by rows;  O = dropout(P) V
//
// With a softcap c, scale Q K^T is c tanh(scale Q K^T / c) instead, and there is no bias.
//
//   FlashArgs args;
//   args.batch = B, args.heads = H, args.kv_heads = H, args.q_len = args.k_len = T;
//   args.head_dim = D;
//   args.q = qkv, args.k = qkv + H * D, args.v = qkv + 2 * H * D;      // packed [B, T, 3, H, D]
//   args.q_stride = args.k_stride = args.v_stride = {T * 3 * H * D, D, 3 * H * D};
//   args.o = o, args.o_stride = {T * H * D, D, H * D};
//   args.lse = lse, args.scale = 1 / sqrt(D), args.causal = true;
//   FlashForward(args);
//
// Shapes: q, o [B, H, Tq, D]; k, v [B, G, Tk, D]; lse [B, H, Tq] contiguous. Elements of a head are
// adjacent, the other strides are free. Any size may be zero.
// Dtypes: q, k, v, o and their gradients of one dtype: float32, bfloat16 or float16, computed in
// float32; or float64. lse and dbias are of the type that is computed in.
// A row without any key (or whose scores are all -inf) gives o = 0, lse = -inf and zero gradients.
//
// The bits of a row (o, lse) depend on the keys it sees and their positions j alone: not on Tq, on
// the other rows, on the batch, on pages or on the number of threads. Decoding with a cache
// therefore equals the full causal pass bit for bit, on the same instruction set. dq, dk, dv and
// dbias do not depend on the number of threads. All outputs are written with "=".
//
// Method: T. Dao, "FlashAttention-2", arXiv:2307.08691, with key blocks aligned to the key index.
// Scratch per thread: forward about 0.4 MB at D = 64; backward (3 Tq + 2 Tk) D floats and 0.2 MB.
#ifndef TESSERA_OPS_ATTENTION_FLASH_CPU_H_
#define TESSERA_OPS_ATTENTION_FLASH_CPU_H_

#include <cstdint>

namespace tessera {

enum class DType : uint8_t;  // core/dtype.h

// In elements; the element (b, h, t, d) is at b * batch + h * head + t * time + d.
struct FlashStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t time = 0;
};

// Keys and values in pages: that of row b with the index j is in place j % page_size of page
// table[b * pages_per_row + j / page_size], and the strides' `batch` is from page to page. Entries
// behind a row's last key are not read.
struct FlashPages {
  const int32_t* table = nullptr;  // null: rows lie in one piece
  int64_t pages_per_row = 0;
  int64_t page_size = 1;
};

// In elements; 0 where the bias is the same along that dimension.
struct FlashBiasStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t query = 0;
  int64_t key = 0;
};

// Probability (b, h, i, j) is dropped if UniformFloat(key, index) < p (core/random.h), otherwise
// scaled by 1 / (1 - p), where index is the element's place in the unsharded, row-major tensor
// [*, heads_total, q_total, k_total], so that every layout drops the same elements.
struct FlashDropout {
  float p = 0.0f;  // [0, 1); 0 is off
  uint64_t key_hi = 0;
  uint64_t key_lo = 0;
  const uint64_t* key_stored = nullptr;  // RandomKey::stored; the GPU's kernels alone
  int64_t batch_begin = 0;               // the unsharded index of row 0 of the batch
  int64_t head_begin = 0;                // of head 0; ignored with head_ids
  const int32_t* head_ids = nullptr;     // [H] unsharded index of each head
  int64_t query_begin = 0;
  int64_t key_begin = 0;
  int64_t heads_total = 0;  // 0: H
  int64_t q_total = 0;      // 0: Tq
  int64_t k_total = 0;      // 0: Tk
};

struct FlashArgs {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t q_len = 0;
  int64_t k_len = 0;
  int64_t head_dim = 0;
  DType dtype = {};  // float32

  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  void* lse = nullptr;  // log of the sum of exp(S) over a row
  FlashStrides q_stride, k_stride, v_stride, o_stride;
  FlashPages pages;  // of k and v; the forward pass alone
  double scale = 1.0;
  double softcap = 0.0;  // c; 0: none

  // The key/value head of each query head, [H]; null: h / (H / G), H being a multiple of G.
  const int32_t* kv_head_of = nullptr;

  // A key is seen if all of the masks that are set allow it.
  // Causal: query i sees keys j <= i + query_offset (+ query_offsets[b] where given), and those
  // with j < prefix_length[b] where given.
  bool causal = false;
  int64_t query_offset = 0;
  const int32_t* query_offsets = nullptr;  // [B]
  // 0: none; query i sees keys j > i + its offsets - window, and without the causal mask those j <
  // i
  // + its offsets + window.
  int64_t window = 0;
  const int32_t* prefix_length = nullptr;   // [B]
  const int32_t* key_length = nullptr;      // [B]: keys j < key_length[b]
  const uint8_t* key_padding = nullptr;     // [B, Tk]: keys that are not 0
  const int32_t* query_document = nullptr;  // [B, Tq]: keys of the query's document ...
  const int32_t* key_document = nullptr;    // [B, Tk]: ... or kEveryDocument; both or none

  const void* bias = nullptr;
  DType bias_dtype = {};  // float32; float64 with float64 only
  FlashBiasStrides bias_stride;

  FlashDropout dropout;
};

// What the forward pass was given, with its o and lse, and the gradients.
struct FlashBackwardArgs {
  FlashArgs forward;
  const void* d_o = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  FlashStrides d_o_stride, dq_stride, dk_stride, dv_stride;
  // Optional gradient of the bias, summed over the dimensions whose stride is 0 in bias_stride. It
  // takes work from the threads: what shares an element of it is computed by one of them.
  void* dbias = nullptr;
  FlashBiasStrides dbias_stride;  // zero where bias_stride is
};

// Both throw Error for sizes, dtypes or pointers that do not go together.
void FlashForward(const FlashArgs& args);
void FlashBackward(const FlashBackwardArgs& args);

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_FLASH_CPU_H_
