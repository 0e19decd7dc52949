// SPDX-License-Identifier: Apache-2.0
// Which elements of a picture the taps of a convolution read.
//
//   PixelRuns runs(grid, taps, /*first pixel*/ 96, /*pixels*/ 45, /*width*/ nr);
//   gather.Rows(runs, k0, depth, panel, nr);    // panel[k - k0][pixel], k = channel * taps + tap
//
// Pixels of all pictures are counted in one row: n * (out_h * out_w) + h * out_w + w.
#ifndef TESSERA_OPS_CONVOLUTION_GATHER_H_
#define TESSERA_OPS_CONVOLUTION_GATHER_H_

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "ops/convolution/gather_rows.h"

namespace tessera {

// An element of the kernel: for pixel (h, w) it reads element (h * step_h + h, w * step_w + w) of
// the picture, zero outside of it, and multiplies by weight[weight] of that channel.
struct Tap {
  int64_t h;
  int64_t w;
  int64_t weight;
};

// Sizes and steps of what is gathered.
struct TapGrid {
  int64_t out_h;
  int64_t out_w;
  int64_t in_h;
  int64_t in_w;
  int64_t step_h;
  int64_t step_w;
  int64_t image_stride;  // elements between pictures of the input

  int64_t out_pixels() const { return out_h * out_w; }
};

// What each tap reads for a range of pixels, as runs of a channel's elements.
class PixelRuns {
 public:
  // Behind `count` pixels, zeros up to `width`.
  PixelRuns(const TapGrid& grid, const std::vector<Tap>& taps, int64_t begin, int64_t count,
            int64_t width);

  int64_t taps() const { return static_cast<int64_t>(first_.size()) - 1; }
  const GatherRun* runs_of(int64_t tap) const {
    return runs_.data() + first_[static_cast<size_t>(tap)];
  }
  int64_t count_of(int64_t tap) const {
    const auto t = static_cast<size_t>(tap);
    return static_cast<int64_t>(first_[t + 1] - first_[t]);
  }

 private:
  void AddTap(const TapGrid& grid, const Tap& tap, int64_t begin, int64_t count);
  void Add(int64_t source, int64_t count, int64_t step);

  std::vector<GatherRun> runs_;
  std::vector<size_t> first_;  // of each tap, and the end
};

// Channels that lie `channel_stride` elements apart, in float32 or float64.
struct Gatherer {
  DType dtype;
  const void* channels;  // the first one of the first picture
  int64_t channel_stride;
  int64_t step;  // TapGrid::step_w

  // dst[(k - k0) * stride + i] = what k = channel * taps + tap reads for pixel i, k0 <= k < k0 + n.
  void Rows(const PixelRuns& runs, int64_t k0, int64_t n, float* dst, int64_t stride) const;
  void Rows(const PixelRuns& runs, int64_t k0, int64_t n, double* dst, int64_t stride) const;
};

}  // namespace tessera

#endif  // TESSERA_OPS_CONVOLUTION_GATHER_H_
