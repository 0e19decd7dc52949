// SPDX-License-Identifier: Apache-2.0
// What the kernels that write pages are given: elements without their dtype.
#ifndef TESSERA_OPS_ATTENTION_PAGES_KERNEL_H_
#define TESSERA_OPS_ATTENTION_PAGES_KERNEL_H_

#include <cstdint>

#include "core/kernel_table.h"

namespace tessera {

struct WritePagesArgs {
  int64_t element_bytes;
  int64_t batch;
  int64_t heads;
  int64_t tokens;
  int64_t head_dim;
  int64_t page_size;
  int64_t pages_per_row;
  const void* x;  // in elements; those of a head are adjacent
  int64_t x_batch, x_head, x_time;
  void* pages;  // [P, heads, page_size, head_dim]
  const int32_t* table;
  const int32_t* begins;
  const int32_t* counts;
};

// Where elements of the place j of row b begin, of head 0.
#if defined(__CUDACC__)
__host__ __device__
#endif
    inline int64_t
    PageElement(const WritePagesArgs& args, int64_t b, int64_t j) {
  const int64_t page = args.table[b * args.pages_per_row + j / args.page_size];
  return (page * args.heads * args.page_size + j % args.page_size) * args.head_dim;
}

inline KernelWork WorkOf(const WritePagesArgs& args) {
  const int64_t elements = args.batch * args.heads * args.tokens * args.head_dim;
  return {.bytes = 2.0 * static_cast<double>(elements * args.element_bytes)};
}

inline KernelTable<WritePagesArgs> write_pages_kernel{"write_pages"};

}  // namespace tessera

#endif  // TESSERA_OPS_ATTENTION_PAGES_KERNEL_H_
