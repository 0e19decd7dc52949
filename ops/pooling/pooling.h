// SPDX-License-Identifier: Apache-2.0
// Pooling over windows of pictures and of sequences.
//
//   Tensor y = MaxPool2d(x_NCHW, {.kernel = 3, .stride = 2, .padding = 1});
//   Tensor mean_NC11 = AdaptiveAvgPool2d(x_NCHW, 1);
//
// As PyTorch has them. x is [N, C, H, W] (of the functions of one dim [N, C, T]), y [N, C, (H + 2
// padding - dilation (kernel - 1) - 1) / stride + 1, ...]; with ceil_mode the quotient is rounded
// up, and a window that would begin behind x and its left padding is left out. Padding is at most
// half of the kernel; MaxPool never chooses it. Of equal elements the first is the largest, NaN is
// larger than all. AdaptiveAvgPool2d: window i of `size` covers [floor(i H / size), ceil((i + 1)
// H / size)).
//
// Floating dtypes; averages are summed in float32 (float64 for float64), rows first. Gradients flow
// to x, independently of threads. Shapes that do not fit throw Error.
#ifndef TESSERA_OPS_POOLING_POOLING_H_
#define TESSERA_OPS_POOLING_POOLING_H_

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "ops/extent2d.h"

namespace tessera {

struct MaxPool2dOptions {
  Extent2d kernel;
  std::optional<Extent2d> stride = std::nullopt;  // that of the kernel
  Extent2d padding = 0;
  Extent2d dilation = 1;
  bool ceil_mode = false;
};
Tensor MaxPool2d(const Tensor& x, const MaxPool2dOptions& options);

// Windows, and what a mean is divided by.
struct AvgPool2dOptions {
  Extent2d kernel;
  std::optional<Extent2d> stride = std::nullopt;  // that of the kernel
  Extent2d padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  // padding counts in what a sum is divided by
};
// Means of windows.
Tensor AvgPool2d(const Tensor& x, const AvgPool2dOptions& options);

// The same along one dim, of x [N, C, T].
struct MaxPool1dOptions {
  int64_t kernel;
  std::optional<int64_t> stride = std::nullopt;
  int64_t padding = 0;
  int64_t dilation = 1;
  bool ceil_mode = false;
};
// The largest element of each window.
Tensor MaxPool1d(const Tensor& x, const MaxPool1dOptions& options);

// Windows along one dim.
struct AvgPool1dOptions {
  int64_t kernel;
  std::optional<int64_t> stride = std::nullopt;
  int64_t padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
};
// Means of windows along one dim.
Tensor AvgPool1d(const Tensor& x, const AvgPool1dOptions& options);

Tensor AdaptiveAvgPool2d(const Tensor& x, Extent2d size);

}  // namespace tessera

#endif  // TESSERA_OPS_POOLING_POOLING_H_
