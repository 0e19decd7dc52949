// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution/depthwise.h"

#include <algorithm>

#include "core/cpu/every_isa.h"
#include "core/cpu/scratch.h"
#include "core/thread_pool.h"
#include "ops/convolution/conv_taps.h"
#include "ops/convolution/depthwise_rows.h"
#include "ops/matmul/gemm_tiles.h"

namespace tessera {
namespace {

constinit thread_local ThreadScratch plane_scratch;
constinit thread_local ThreadScratch out_scratch;

void Sum(const DepthwisePlane<float>& p, const float* weight, float bias, float* out) {
  constexpr IsaTable<DepthwiseSumFn> kSum{TESSERA_FOR_EVERY_ISA(DepthwiseSum)};
  kSum.Select()(p, weight, bias, out);
}

void Sum(const DepthwisePlane<double>& p, const double* weight, double bias, double* out) {
  for (int64_t i = 0; i < p.out_h * p.out_w; ++i) {
    const int64_t at = i / p.out_w * p.step_h * p.row_stride + i % p.out_w * p.step_w;
    out[i] = bias;
    for (int64_t t = 0; t < p.tap_count; ++t) out[i] += weight[t] * p.plane[at + p.taps[t]];
  }
}

void Dots(const DepthwisePlane<float>& p, const float* dy, float* sums) {
  constexpr IsaTable<DepthwiseDotsFn> kDots{TESSERA_FOR_EVERY_ISA(DepthwiseDots)};
  kDots.Select()(p, dy, sums);
}

void Dots(const DepthwisePlane<double>& p, const double* dy, double* sums) {
  for (int64_t i = 0; i < p.out_h * p.out_w; ++i) {
    const int64_t at = i / p.out_w * p.step_h * p.row_stride + i % p.out_w * p.step_w;
    for (int64_t t = 0; t < p.tap_count; ++t) sums[t] += dy[i] * p.plane[at + p.taps[t]];
  }
}

// The padded pictures of channels: all that the taps read, from the first of them on.
template <typename E>
class PaddedPlanes {
 public:
  PaddedPlanes(DType dtype, const TapGrid& grid, const std::vector<Tap>& taps, const void* in)
      : dtype_(dtype),
        grid_(grid),
        in_(in),
        first_(First(taps)),
        height_((grid.out_h - 1) * grid.step_h + Last(taps).h - first_.h + 1),
        width_((grid.out_w - 1) * grid.step_w + Last(taps).w - first_.w + 1),
        runs_({height_, width_, grid.in_h, grid.in_w, 1, 1, grid.image_stride}, {first_}, 0,
              height_ * width_, height_ * width_) {
    for (const Tap& tap : taps) {
      offsets_.push_back((tap.h - first_.h) * width_ + tap.w - first_.w);
    }
  }

  // Valid until this thread asks for the next one.
  DepthwisePlane<E> Of(int64_t image, int64_t channel) const {
    const int64_t pixels = grid_.in_h * grid_.in_w;
    const int64_t at = image * grid_.image_stride + channel * pixels;
    E* plane = plane_scratch.Get<E>(height_ * width_);
    const Gatherer gatherer{dtype_, static_cast<const char*>(in_) + BytesOf(dtype_, at), pixels, 1};
    gatherer.Rows(runs_, 0, 1, plane, height_ * width_);
    return {plane,       width_,      grid_.step_h,    grid_.step_w,
            grid_.out_h, grid_.out_w, offsets_.data(), static_cast<int64_t>(offsets_.size())};
  }

 private:
  static Tap First(const std::vector<Tap>& taps) {
    Tap first{INT64_MAX, INT64_MAX, 0};
    for (const Tap& t : taps) first.h = std::min(first.h, t.h), first.w = std::min(first.w, t.w);
    return first;
  }
  static Tap Last(const std::vector<Tap>& taps) {
    Tap last{INT64_MIN, INT64_MIN, 0};
    for (const Tap& t : taps) last.h = std::max(last.h, t.h), last.w = std::max(last.w, t.w);
    return last;
  }

  const DType dtype_;
  const TapGrid grid_;
  const void* const in_;
  const Tap first_;
  const int64_t height_;
  const int64_t width_;
  const PixelRuns runs_;
  std::vector<int64_t> offsets_;
};

// Element `at` of a tensor of `dtype`.
template <typename E>
E ElementAt(const void* data, DType dtype, int64_t at) {
  E value{0};
  SelectGemmKernels<E>().load_row(GemmElementOf(dtype),
                                  static_cast<const char*>(data) + BytesOf(dtype, at), 1, &value);
  return value;
}

// `pixels` (contiguous) to where the sum's plane of (image, channel) lies.
template <typename E>
void StorePlane(const TapSum& sum, int64_t image, int64_t channel, const E* pixels) {
  const int64_t at = sum.out_begin + image * sum.out_image + channel * sum.out_row;
  DispatchFloat(sum.dtype, "convolution", [&](auto zero) {
    using T = decltype(zero);
    T* out = static_cast<T*>(sum.out) + at;
    for (int64_t h = 0; h < sum.grid.out_h; ++h, pixels += sum.grid.out_w) {
      T* row = out + h * sum.out_h;
      if (sum.out_w == 1) {
        SelectGemmKernels<E>().store_row(GemmElementOf(sum.dtype), pixels, sum.grid.out_w, row);
      } else {
        for (int64_t w = 0; w < sum.grid.out_w; ++w) {
          row[w * sum.out_w] = static_cast<T>(pixels[w]);
        }
      }
    }
  });
}

template <typename E>
void Run(const TapSum& sum) {
  const bool reads = !sum.taps.empty();
  const PaddedPlanes<E> planes(sum.dtype, sum.grid, reads ? sum.taps : std::vector<Tap>{{0, 0, 0}},
                               sum.in);
  ParallelFor(sum.batch * sum.groups, 1, [&](int64_t task, int64_t) {
    const int64_t group = task % sum.groups;
    std::vector<E> weight;
    for (const Tap& tap : sum.taps) {
      weight.push_back(ElementAt<E>(sum.weight, sum.dtype, group * sum.weight_group + tap.weight));
    }
    const E bias = sum.bias == nullptr ? E{0} : ElementAt<E>(sum.bias, sum.dtype, group);
    E* out = out_scratch.Get<E>(sum.grid.out_pixels());
    if (reads) {
      Sum(planes.Of(task / sum.groups, group), weight.data(), bias, out);
    } else {
      std::fill_n(out, sum.grid.out_pixels(), bias);
    }
    StorePlane(sum, task / sum.groups, group, out);
  });
}

template <typename E>
void WeightGrad(const ConvWeightGradArgs& args) {
  const ConvShape& s = args.shape;
  const PaddedPlanes<E> planes(args.dtype, ForwardGrid(s), ForwardTaps(s), args.x);
  const int64_t per_slice = CeilDiv(s.batch, args.slices);
  ParallelFor(args.slices * s.groups, 1, [&](int64_t task, int64_t) {
    const int64_t group = task % s.groups;
    const int64_t begin = task / s.groups * per_slice;
    E* sums = static_cast<E*>(args.partial) + task * s.taps();
    std::fill_n(sums, s.taps(), E{0});
    E* dy = out_scratch.Get<E>(s.out_pixels());
    for (int64_t n = begin; n < std::min(s.batch, begin + per_slice); ++n) {
      const int64_t at = (n * s.groups + group) * s.out_pixels();
      SelectGemmKernels<E>().load_row(GemmElementOf(args.dtype),
                                      static_cast<const char*>(args.dy) + BytesOf(args.dtype, at),
                                      s.out_pixels(), dy);
      Dots(planes.Of(n, group), dy, sums);
    }
  });
}

}  // namespace

void RunDepthwise(const TapSum& sum) {
  if (sum.dtype == DType::kFloat64) return Run<double>(sum);
  Run<float>(sum);
}

void DepthwiseWeightGrad(const ConvWeightGradArgs& args) {
  if (args.dtype == DType::kFloat64) return WeightGrad<double>(args);
  WeightGrad<float>(args);
}

}  // namespace tessera
