// SPDX-License-Identifier: Apache-2.0
#include "ops/pooling/pooling.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "ops/pooling/blend.h"
#include "ops/pooling/pooling_kernel.h"

namespace tessera {
namespace {

struct Window {
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation;
  bool ceil_mode;
};

PoolDim DimOf(const char* name, int64_t in, const Window& w) {
  TESSERA_CHECK(w.kernel >= 1 && w.stride >= 1 && w.dilation >= 1 && w.padding >= 0 &&
                    w.padding <= w.kernel / 2,
                name, "kernel ", w.kernel, ", stride ", w.stride, ", padding ", w.padding,
                ", dilation ", w.dilation);
  const int64_t reach =
      in + 2 * w.padding - w.dilation * (w.kernel - 1) - 1 + (w.ceil_mode ? w.stride - 1 : 0);
  TESSERA_CHECK(reach >= 0, name, "no window of ", w.kernel, " with dilation ", w.dilation,
                " fits into ", in, " elements and a padding of ", w.padding);
  int64_t out = reach / w.stride + 1;
  if (w.ceil_mode && (out - 1) * w.stride >= in + w.padding) --out;
  // Of a window that begins in the padding, dilation may step over all of x.
  for (int64_t i = 0; i < out && i * w.stride < w.padding; ++i) {
    const int64_t before = w.padding - i * w.stride;
    TESSERA_CHECK((w.dilation - before % w.dilation) % w.dilation < in, name, "a window of ",
                  w.kernel, " with dilation ", w.dilation, " and padding ", w.padding,
                  " meets none of ", in, " elements");
  }
  return {in, out, w.kernel, w.stride, w.padding, w.dilation};
}

void CheckPictures(const char* name, const Tensor& x, int ndim) {
  TESSERA_CHECK(x.ndim() == ndim && IsFloating(x.dtype()) && x.size(2) > 0 && x.size(-1) > 0, name,
                "cannot pool ", x, ": ", ndim, " dims of a floating dtype are needed");
}

PoolDim One() { return {1, 1, 1, 1, 0, 1}; }

Tensor MaxPool(const char* name, const Tensor& x, const PoolDim& h, const PoolDim& w,
               const Shape& result) {
  TESSERA_CHECK(h.in * w.in <= INT32_MAX, name, "pictures of ", x, " are too large");
  const Tensor y = Empty(result, x.dtype(), x.device());
  const Tensor from = Empty(result, DType::kInt32, x.device());
  const int64_t planes = x.size(0) * x.size(1);
  if (y.numel() > 0) {
    const Tensor xc = x.ContiguousCopy();
    max_pool_kernel.Launch(x.device(), {.dtype = x.dtype(),
                                        .planes = planes,
                                        .h = h,
                                        .w = w,
                                        .x = xc.raw_data(),
                                        .y = y.raw_data(),
                                        .from = static_cast<int32_t*>(from.raw_data())});
  }
  if (AnyRequiresGrad({x})) {
    Record(name, {x}, {y},
           [h, w, planes, shape = x.shape(), from = SavedTensor(from)](GradContext& ctx) {
             const Tensor dy = ctx.grad().ContiguousCopy();
             const Tensor dx = Empty(shape, dy.dtype(), dy.device());
             if (dx.numel() > 0) {
               max_pool_grad_kernel.Launch(
                   dy.device(), {.dtype = dy.dtype(),
                                 .planes = planes,
                                 .h = h,
                                 .w = w,
                                 .dy = dy.raw_data(),
                                 .from = static_cast<const int32_t*>(from.Unpack().raw_data()),
                                 .dx = dx.raw_data()});
             }
             ctx.set(0, dx);
           });
  }
  return y;
}

// The mean of each window.
BlendTable Averages(const PoolDim& dim, bool count_include_pad) {
  BlendTable table{dim.in, {}, {}};
  for (int64_t i = 0; i < dim.out; ++i) {
    const int64_t begin = i * dim.stride - dim.padding;
    const int64_t padded_end = std::min(begin + dim.kernel, dim.in + dim.padding);
    const int64_t from = std::max<int64_t>(begin, 0);
    const int64_t to = std::max(from, std::min(padded_end, dim.in));
    const int64_t count = count_include_pad ? padded_end - begin : to - from;
    table.begin.push_back(std::min(from, dim.in - 1));
    table.weights.emplace_back(static_cast<size_t>(to - from), 1.0 / static_cast<double>(count));
  }
  return table;
}

BlendTable AdaptiveAverages(int64_t in, int64_t out) {
  BlendTable table{in, {}, {}};
  for (int64_t i = 0; i < out; ++i) {
    const int64_t from = i * in / out;
    const int64_t to = ((i + 1) * in + out - 1) / out;
    table.begin.push_back(from);
    table.weights.emplace_back(static_cast<size_t>(to - from),
                               1.0 / static_cast<double>(to - from));
  }
  return table;
}

}  // namespace

Tensor MaxPool2d(const Tensor& x, const MaxPool2dOptions& o) {
  constexpr const char* kName = "max_pool2d";
  CheckPictures(kName, x, 4);
  const Extent2d stride = o.stride.value_or(o.kernel);
  const PoolDim h =
      DimOf(kName, x.size(2), {o.kernel.h, stride.h, o.padding.h, o.dilation.h, o.ceil_mode});
  const PoolDim w =
      DimOf(kName, x.size(3), {o.kernel.w, stride.w, o.padding.w, o.dilation.w, o.ceil_mode});
  return MaxPool(kName, x, h, w, {x.size(0), x.size(1), h.out, w.out});
}

Tensor MaxPool1d(const Tensor& x, const MaxPool1dOptions& o) {
  constexpr const char* kName = "max_pool1d";
  CheckPictures(kName, x, 3);
  const PoolDim w =
      DimOf(kName, x.size(2),
            {o.kernel, o.stride.value_or(o.kernel), o.padding, o.dilation, o.ceil_mode});
  return MaxPool(kName, x, One(), w, {x.size(0), x.size(1), w.out});
}

Tensor AvgPool2d(const Tensor& x, const AvgPool2dOptions& o) {
  constexpr const char* kName = "avg_pool2d";
  CheckPictures(kName, x, 4);
  const Extent2d stride = o.stride.value_or(o.kernel);
  const PoolDim h = DimOf(kName, x.size(2), {o.kernel.h, stride.h, o.padding.h, 1, o.ceil_mode});
  const PoolDim w = DimOf(kName, x.size(3), {o.kernel.w, stride.w, o.padding.w, 1, o.ceil_mode});
  return BlendPlanes(kName, x, Averages(h, o.count_include_pad), Averages(w, o.count_include_pad),
                     {x.size(0), x.size(1), h.out, w.out});
}

Tensor AvgPool1d(const Tensor& x, const AvgPool1dOptions& o) {
  constexpr const char* kName = "avg_pool1d";
  CheckPictures(kName, x, 3);
  const PoolDim w =
      DimOf(kName, x.size(2), {o.kernel, o.stride.value_or(o.kernel), o.padding, 1, o.ceil_mode});
  return BlendPlanes(kName, x, BlendTable::Identity(), Averages(w, o.count_include_pad),
                     {x.size(0), x.size(1), w.out});
}

Tensor AdaptiveAvgPool2d(const Tensor& x, Extent2d size) {
  constexpr const char* kName = "adaptive_avg_pool2d";
  CheckPictures(kName, x, 4);
  TESSERA_CHECK(size.h > 0 && size.w > 0, kName, "no windows: ", size.h, " x ", size.w);
  return BlendPlanes(kName, x, AdaptiveAverages(x.size(2), size.h),
                     AdaptiveAverages(x.size(3), size.w), {x.size(0), x.size(1), size.h, size.w});
}

}  // namespace tessera
