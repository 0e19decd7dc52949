// SPDX-License-Identifier: Apache-2.0
// Writing the keys or values of new tokens into pages (AttentionOptions::pages).
//
//   WritePages(pages_PGSD, k_BGTD, {.table = table, .begins = begins, .counts = counts});
//
// Token t of row b, for t < counts[b], goes to the place begins[b] + t of that row: place j % S of
// page table[b, j / S]. Off the tape; pages that two rows share are not to be written.
// Letters: P pages, S tokens of a page, B rows, G key/value heads, T new tokens, D head size.
#ifndef TESSERA_OPS_ATTENTION_PAGES_H_
#define TESSERA_OPS_ATTENTION_PAGES_H_

#include "core/tensor.h"

namespace tessera {

// On the device of the pages.
struct PagePlaces {
  Tensor table;   // [B, N] int32
  Tensor begins;  // [B] int32
  Tensor counts;  // [B] int32; begins + counts at most N * S
};

// pages [P, G, S, D] contiguous, x [B, G, T, D] of the same dtype and device; any strides. Throws
// Error for what does not go together.
void WritePages(const Tensor& pages, const Tensor& x, const PagePlaces& places);

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_PAGES_H_
