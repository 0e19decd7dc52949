// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution/gather.h"

#include <algorithm>

#include "core/cpu/every_isa.h"
#include "core/cpu/row_kernels.h"

namespace tessera {
namespace {

int64_t CeilDivOfSigned(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// Pixels t of [0, out) whose element t * step + offset lies in [0, in).
struct Inside {
  int64_t begin;
  int64_t end;
};
Inside InsideOf(int64_t out, int64_t in, int64_t step, int64_t offset) {
  const int64_t begin = std::clamp<int64_t>(CeilDivOfSigned(-offset, step), 0, out);
  const int64_t end = std::clamp<int64_t>(CeilDivOfSigned(in - offset, step), begin, out);
  return {begin, end};
}

// Calls rows(channel, first row) for each tap: rows of dst with k = channel * taps + tap.
template <typename F>
void EachTap(const PixelRuns& runs, int64_t k0, int64_t n, F rows) {
  const int64_t taps = runs.taps();
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t channel = std::max<int64_t>(0, CeilDivOfSigned(k0 - tap, taps));
    const int64_t row = channel * taps + tap - k0;
    if (row < n) rows(tap, channel, row, (n - row + taps - 1) / taps);
  }
}

}  // namespace

PixelRuns::PixelRuns(const TapGrid& grid, const std::vector<Tap>& taps, int64_t begin,
                     int64_t count, int64_t width) {
  for (const Tap& tap : taps) {
    first_.push_back(runs_.size());
    AddTap(grid, tap, begin, count);
    if (width > count) Add(GatherRun::kPadding, width - count, 1);
  }
  first_.push_back(runs_.size());
}

void PixelRuns::AddTap(const TapGrid& grid, const Tap& tap, int64_t begin, int64_t count) {
  const Inside inside = InsideOf(grid.out_w, grid.in_w, grid.step_w, tap.w);
  const int64_t end = begin + count;
  for (int64_t q = begin; q < end;) {
    const int64_t n = q / grid.out_pixels();
    const int64_t h = q % grid.out_pixels() / grid.out_w;
    const int64_t w = q % grid.out_w;
    const int64_t w_end = std::min(grid.out_w, w + end - q);
    const int64_t in_h = h * grid.step_h + tap.h;
    q += w_end - w;
    if (in_h < 0 || in_h >= grid.in_h) {
      Add(GatherRun::kPadding, w_end - w, grid.step_w);
      continue;
    }
    const int64_t from = std::clamp(inside.begin, w, w_end);
    const int64_t to = std::clamp(inside.end, from, w_end);
    Add(GatherRun::kPadding, from - w, grid.step_w);
    Add(n * grid.image_stride + in_h * grid.in_w + from * grid.step_w + tap.w, to - from,
        grid.step_w);
    Add(GatherRun::kPadding, w_end - to, grid.step_w);
  }
}

// Joins what follows the run before.
void PixelRuns::Add(int64_t source, int64_t count, int64_t step) {
  if (count == 0) return;
  if (runs_.size() > first_.back()) {
    GatherRun& last = runs_.back();
    const bool padding = last.source == GatherRun::kPadding;
    if (padding == (source == GatherRun::kPadding) &&
        (padding || last.source + last.count * step == source)) {
      last.count += count;
      return;
    }
  }
  runs_.push_back({source, count});
}

void Gatherer::Rows(const PixelRuns& runs, int64_t k0, int64_t n, float* dst,
                    int64_t stride) const {
  constexpr IsaTable<void(const GatherRows&)> kGather{TESSERA_FOR_EVERY_ISA(Gather)};
  auto* const gather = kGather.Select();
  const auto* bytes = static_cast<const char*>(channels);
  EachTap(runs, k0, n, [&](int64_t tap, int64_t channel, int64_t row, int64_t rows) {
    gather({RowTypeOf(dtype), bytes + BytesOf(dtype, channel * channel_stride), channel_stride,
            step, runs.runs_of(tap), runs.count_of(tap), rows, dst + row * stride,
            runs.taps() * stride});
  });
}

void Gatherer::Rows(const PixelRuns& runs, int64_t k0, int64_t n, double* dst,
                    int64_t stride) const {
  EachTap(runs, k0, n, [&](int64_t tap, int64_t channel, int64_t row, int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      const double* src = static_cast<const double*>(channels) + (channel + r) * channel_stride;
      double* to = dst + (row + r * runs.taps()) * stride;
      for (int64_t i = 0; i < runs.count_of(tap); ++i) {
        const GatherRun run = runs.runs_of(tap)[i];
        const bool padding = run.source == GatherRun::kPadding;
        for (int64_t j = 0; j < run.count; ++j) *to++ = padding ? 0.0 : src[run.source + j * step];
      }
    }
  });
}

}  // namespace tessera
