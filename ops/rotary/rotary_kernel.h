// SPDX-License-Identifier: Apache-2.0
// What a rotary kernel is given.
#ifndef TESSERA_OPS_ROTARY_ROTARY_KERNEL_H_
#define TESSERA_OPS_ROTARY_ROTARY_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

// Kernels of GPUs take the frequencies as an argument, which has room for so many.
inline constexpr int64_t kMostRotaryPairs = 256;

struct RotaryArgs {
  DType dtype;
  int64_t batch;
  int64_t heads;
  int64_t tokens;
  int64_t head_dim;
  int64_t parts;                      // of head_dim, each with its own coordinate
  int64_t pairs;                      // rotated in each part
  const double* inverse_frequencies;  // [pairs], of the host
  double scale;
  bool interleaved;
  bool inverse;              // rotate the other way: the gradient
  const int64_t* positions;  // [batch, parts, tokens], contiguous
  const void* x;             // [batch, heads, tokens, head_dim], whose features are adjacent
  int64_t x_batch_stride;
  int64_t x_head_stride;
  int64_t x_token_stride;
  void* y;  // "=", contiguous
};

inline KernelWork WorkOf(const RotaryArgs& args) {
  const int64_t elements = args.batch * args.heads * args.tokens * args.head_dim;
  return {.bytes = 2 * BytesOfElements(args.dtype, elements)};
}

inline KernelTable<RotaryArgs> rotary_kernel{"rotary"};

}  // namespace tessera

#endif  // TESSERA_OPS_ROTARY_ROTARY_KERNEL_H_
