// SPDX-License-Identifier: Apache-2.0
// What the kernels of convolutions are given: contiguous tensors x [batch, groups * in_channels,
// in_h, in_w], y [batch, groups * out_channels, out_h, out_w] and weight [groups * out_channels,
// in_channels, kernel_h, kernel_w].
#ifndef TESSERA_OPS_CONVOLUTION_CONVOLUTION_KERNEL_H_
#define TESSERA_OPS_CONVOLUTION_CONVOLUTION_KERNEL_H_

#include <cstdint>

#include "core/dtype.h"
#include "core/kernel_table.h"

namespace tessera {

// One dim of the picture.
struct ConvDim {
  int64_t in;
  int64_t out;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation;
};

// Sizes of all that takes part.
struct ConvShape {
  int64_t batch;
  int64_t groups;
  int64_t in_channels;   // per group
  int64_t out_channels;  // per group
  ConvDim h;
  ConvDim w;

  int64_t taps() const { return h.kernel * w.kernel; }
  int64_t in_pixels() const { return h.in * w.in; }
  int64_t out_pixels() const { return h.out * w.out; }
  // One channel in and one out per group.
  bool depthwise() const { return in_channels == 1 && out_channels == 1; }
};

// Of the convolution.
struct ConvArgs {
  DType dtype;  // of x, weight, bias and y
  ConvShape shape;
  const void* x;
  const void* weight;
  const void* bias;  // [groups * out_channels] or nullptr
  void* y;           // "="
};

// Of the gradient of its input.
struct ConvInputGradArgs {
  DType dtype;  // of all
  ConvShape shape;
  const void* dy;
  const void* weight;
  const void* bias;  // added to dx (of a transposed convolution), [groups * in_channels] or nullptr
  void* dx;          // "="
};

// Of the gradient of its weight.
struct ConvWeightGradArgs {
  DType dtype;  // of x and dy
  ConvShape shape;
  int64_t slices;  // the pixels of all pictures are cut into so many parts
  const void* x;
  const void* dy;
  void* partial;  // [slices, the shape of weight], AccumulateDType(dtype), "="
};

// The same of the forward pass and of both gradients.
inline KernelWork ConvWork(const ConvShape& s, DType dtype) {
  const int64_t in = s.batch * s.groups * s.in_channels * s.in_pixels();
  const int64_t out = s.batch * s.groups * s.out_channels * s.out_pixels();
  const int64_t weight = s.groups * s.in_channels * s.out_channels * s.taps();
  return {.flops = 2.0 * static_cast<double>(out) * static_cast<double>(s.in_channels * s.taps()),
          .bytes = BytesOfElements(dtype, in + out + weight),
          .products = dtype};
}
inline KernelWork WorkOf(const ConvArgs& args) { return ConvWork(args.shape, args.dtype); }
inline KernelWork WorkOf(const ConvInputGradArgs& args) { return ConvWork(args.shape, args.dtype); }
inline KernelWork WorkOf(const ConvWeightGradArgs& args) {
  return ConvWork(args.shape, args.dtype);
}

inline KernelTable<ConvArgs> conv_forward{"convolution"};
inline KernelTable<ConvInputGradArgs> conv_input_grad{"convolution input gradient"};
inline KernelTable<ConvWeightGradArgs> conv_weight_grad{"convolution weight gradient"};

// Columns [batch, groups * in_channels * taps, out_pixels] of x as strides say: element (n, row, p)
// at n * image_stride + row * row_stride + p, "=". For devices that multiply them by a library.
struct UnfoldArgs {
  DType dtype;
  ConvShape shape;
  const void* x;
  int64_t image_stride;
  int64_t row_stride;
  void* columns;
};
// The transpose: dx = for each element the sum of what was made of it, "=".
struct FoldArgs {
  DType dtype;
  ConvShape shape;
  const void* columns;  // strides as above
  int64_t image_stride;
  int64_t row_stride;
  void* dx;
};
inline KernelTable<UnfoldArgs> unfold_kernel{"unfold"};
inline KernelTable<FoldArgs> fold_kernel{"fold"};

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_CONVOLUTION_KERNEL_H_
