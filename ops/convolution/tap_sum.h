// SPDX-License-Identifier: Apache-2.0
// Sums over the taps of a kernel: what a convolution and the gradient of its input both are.
//
//   out(n, g, r, h, w) = bias[g, r] + sum over channels c and taps t of
//       weight(g, r, c, t) in(n, g, c, h * step_h + t.h, w * step_w + t.w)
//
// A matrix product whose left-hand side is the weight and whose right-hand side is gathered from
// `in` by panels. Tasks are ranges of pixels (of all pictures) and of rows; each goes through
// k = channel * taps + tap in blocks of kGemmDepthBlock, so that an element is the chain of
// ops/matmul/gemm.h wherever it stands. The packed weight is kept by the calling thread.
#ifndef TESSERA_OPS_CONVOLUTION_TAP_SUM_H_
#define TESSERA_OPS_CONVOLUTION_TAP_SUM_H_

#include <vector>

#include "ops/convolution/gather.h"

namespace tessera {

struct TapSum {
  DType dtype;  // of all tensors
  TapGrid grid;
  std::vector<Tap> taps;
  int64_t batch;
  int64_t groups;
  int64_t rows;      // outputs per group
  int64_t channels;  // inputs per group

  const void* in;  // channels lie grid.in_h * grid.in_w apart
  const void* weight;
  int64_t weight_group;  // strides
  int64_t weight_row;
  int64_t weight_channel;
  const void* bias;  // [groups * rows] or nullptr

  void* out;          // "="; pixel (h, w) of picture n and row r at
  int64_t out_begin;  // out_begin + n * out_image + r * out_row + h * out_h + w * out_w
  int64_t out_image;
  int64_t out_row;
  int64_t out_h;
  int64_t out_w;
};

// Computes it.
void RunTapSum(const TapSum& sum);

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_TAP_SUM_H_
