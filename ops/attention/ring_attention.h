// SPDX-License-Identifier: Apache-2.0
// Attention over a sequence that is cut over ranks: keys and values travel in a ring (Liu et al.
// 2023, "Ring Attention", arXiv:2310.01889).
//
//   const SequenceRing ring = {.group = cp, .queries = T, .keys = T};
//   Tensor o_BHSD = RingAttention(q_BHSD, k_BGSD, v_BGSD, {.causal = true}, ring).output;
//
// Each rank has the tokens of SequenceRuns (ops/collective/sequence_runs.h): q [B, H, S, D] of
// ring.queries, k and v [B, G, S', D] of ring.keys. In N turns a rank sees the keys of all N, its
// own first, then those of the rank before it, and so on; it holds those of two at a time. What it
// finds is merged by the logarithms of the sums of exponentials, in float32. Keys that no query of
// a rank may see cost it no work.
//
// The options speak of the whole sequence: key_padding [B, keys], query_document [B, queries] and
// key_document [B, keys] of all tokens, prefix_length, offset and window counted from its first.
// `bias` has this rank's queries and all keys. Dropout drops what one rank would. Not with pages,
// key_length or query_offsets.
//
// Result: output and lse of this rank's queries, as Attention gives them (ops/attention/
// attention.h). It equals one rank's to rounding, and not bit for bit: a sum over keys is one sum
// for each rank's keys, in the order in which they come by. The result is the same each time.
// Gradients flow to q, k, v and bias; those of keys travel with them and end where they began.
// With a group of one this is Attention. Every rank calls it in the same order, also backwards.
#ifndef TESSERA_OPS_ATTENTION_RING_ATTENTION_H_
#define TESSERA_OPS_ATTENTION_RING_ATTENTION_H_

#include <cstdint>

#include "core/tensor.h"
#include "ops/attention/attention.h"
#include "ops/collective/collective.h"

namespace tessera {

struct SequenceRing {
  Group group;
  int64_t queries = 0;  // of the whole sequence
  int64_t keys = 0;     // of the whole sequence that is looked at
};

AttentionResult RingAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                              const AttentionOptions& options, const SequenceRing& ring);

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_RING_ATTENTION_H_
