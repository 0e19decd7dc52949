// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, without a Tq x Tk matrix in memory.
//
//   AttentionOptions options;
//   options.causal = true;
//   Tensor o_BHTD = Attention(q_BHTD, k_BGTD, v_BGTD, options).output;
//
// softmax(scale q k^T + bias, masked) v, with dropout on the probabilities (Vaswani et al. 2017;
// Dao 2023). Letters: B batch, H query heads, G key/value heads (H a multiple of G: grouped
// heads), Tq and Tk lengths, D head size.
//   q [B, H, Tq, D], k and v [B, G, Tk, D], of one floating dtype; any strides, read where they are
//   when the last one is 1 (a packed q, k, v projection needs no copy).
// Result: output [B, H, Tq, D], a view whose memory is [B, Tq, H, D], so that merging the heads is
// a reshape; lse [B, H, Tq], the log-sum-exp of the masked scores, float32 (float64 for float64),
// off the tape. A row that sees no key gives zeros, an lse of -inf and zero gradients.
// Gradients flow to q, k, v and bias. Misuse throws Error.
#ifndef TESSERA_OPS_ATTENTION_ATTENTION_H_
#define TESSERA_OPS_ATTENTION_ATTENTION_H_

#include "core/random.h"
#include "core/tensor.h"
#include "ops/attention/every_document.h"

namespace tessera {

struct AttentionOptions {
  double scale = 0.0;  // 0: 1 / sqrt(D)
  // Scaled scores s become softcap tanh(s / softcap) (Gemma 2; Bello et al. 2016); 0: they stay.
  // Without a bias. On the GPU the kernels without tensor cores compute it.
  double softcap = 0.0;

  // Keys and values that are kept from step to step lie in pages of S tokens, k and v [P, G, S, D],
  // without gradients: for each row of the batch the pages that are its own, in order. What stands
  // behind a row's last key (key_length) is not read, nor are the entries behind its last page. The
  // bits are those of keys that lie by rows.
  Tensor pages = {};       // [B, N] int32; undefined: k and v lie by rows
  int64_t paged_keys = 0;  // with pages: Tk, at most N * S

  // A key is seen if every mask that is given allows it.
  // Causal: query i sees keys j <= i + query_offset (+ query_offsets[b]), and keys j <
  // prefix_length[b] besides, but for those that a window has passed.
  bool causal = false;
  int64_t query_offset = 0;
  Tensor query_offsets = {};  // [B] int32
  // Sliding window (0: none): of the keys up to its own place p = i + query_offset (+
  // query_offsets[b]) the `window` last ones, j > p - window; without the causal mask also as many
  // on the other side, j < p + window. Places are counted, seen or not.
  int64_t window = 0;
  Tensor prefix_length = {};   // [B] int32
  Tensor key_length = {};      // [B] int32: keys j < key_length[b]
  Tensor key_padding = {};     // [B, Tk] bool or uint8: keys that are not zero
  Tensor query_document = {};  // [B, Tq] int32: keys of the query's document, or of every
  Tensor key_document = {};    // [B, Tk] int32: documents, or kEveryDocument; both or none

  // Added to the scaled scores; [B or 1, H or 1, Tq or 1, Tk or 1], of q's dtype or float32.
  Tensor bias = {};

  // Dropout on the probabilities; element (b, h, i, j) is dropped by its index in the unsharded
  // [B, heads_total, queries_total, keys_total].
  double dropout_p = 0.0;
  RandomKey dropout_key = {};
  int64_t head_begin = 0;   // index of the first head among all
  int64_t heads_total = 0;  // 0: H
  // Where the first query and the first key are in the unsharded [.., .., queries_total,
  // keys_total].
  int64_t query_begin = 0;
  int64_t key_begin = 0;
  int64_t queries_total = 0;  // 0: Tq
  int64_t keys_total = 0;     // 0: Tk
};

// What attention gives, and the logarithm of each query's sum of exponentials.
struct AttentionResult {
  Tensor output;
  Tensor lse;
};

AttentionResult Attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options);

// Its gradients, off the tape, for who calls attention by parts: with the output and lse over all
// keys, the gradients of some of them are what those keys add (ops/attention/ring_attention.h).
// `bias` is of the type that is computed in, and is there where it is asked for.
struct AttentionGradients {
  Tensor q, k, v;
  Tensor bias;
};
AttentionGradients AttentionBackward(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionResult& result, const Tensor& d_output,
                                     const AttentionOptions& options, bool needs_bias);

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_ATTENTION_H_
