// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution/tap_sum.h"

#include <algorithm>

#include "core/cpu/scratch.h"
#include "core/thread_pool.h"
#include "ops/convolution/depthwise.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/gemm_tiles.h"

namespace tessera {
namespace {

// Panels of pixels that a task takes at a time: with a block of depth they stay in the cache.
constexpr int64_t kPanels = 5;

constinit thread_local ThreadScratch weight_scratch;
constinit thread_local ThreadScratch panel_scratch;
constinit thread_local ThreadScratch sums_scratch;

template <typename E>
class TapProduct {
 public:
  explicit TapProduct(const TapSum& sum)
      : sum_(sum),
        kernels_(SelectGemmKernels<E>()),
        element_(GemmElementOf(sum.dtype)),
        taps_(static_cast<int64_t>(sum.taps.size())),
        depth_(sum.channels * taps_),
        columns_(sum.batch * sum.grid.out_pixels()),
        panels_(CeilDiv(columns_, kernels_.nr)),
        tiles_(CeilDiv(sum.rows, kernels_.mr)) {}

  void Run() {
    PackWeight();
    const int64_t wanted = int64_t{4} * NumThreads();
    const int64_t panels = std::clamp(panels_ * sum_.groups / wanted, int64_t{1}, kPanels);
    const int64_t column_tasks = CeilDiv(panels_, panels);
    const int64_t row_tasks =
        std::clamp(CeilDiv(wanted, 2 * column_tasks * sum_.groups), int64_t{1}, CeilDiv(tiles_, 4));
    const int64_t tiles = CeilDiv(tiles_, row_tasks);
    ParallelFor(sum_.groups * column_tasks * row_tasks, 1, [&](int64_t task, int64_t) {
      const int64_t group = task / (column_tasks * row_tasks);
      const int64_t panel = task / row_tasks % column_tasks * panels;
      const int64_t tile = task % row_tasks * tiles;
      if (tile >= tiles_) return;
      Task(group, panel, std::min(panels, panels_ - panel), tile, std::min(tiles, tiles_ - tile));
    });
  }

 private:
  // Packed: [group][block of depth][tile][depth of the block][mr].
  E* PackedAt(int64_t group, int64_t k, int64_t tile, int64_t depth) const {
    const int64_t mr = kernels_.mr;
    return weight_ + (group * depth_ + k) * tiles_ * mr + tile * mr * depth;
  }

  void PackWeight() {
    weight_ = weight_scratch.Get<E>(sum_.groups * depth_ * tiles_ * kernels_.mr);
    constexpr int64_t kTilesAtOnce = 4;
    const int64_t blocks = CeilDiv(depth_, kGemmDepthBlock);
    const int64_t runs = CeilDiv(tiles_, kTilesAtOnce);
    ParallelFor(sum_.groups * blocks * runs, 1, [&](int64_t task, int64_t) {
      const int64_t k = task / runs % blocks * kGemmDepthBlock;
      const int64_t first = task % runs * kTilesAtOnce;
      for (int64_t t = first; t < std::min(tiles_, first + kTilesAtOnce); ++t) {
        PackTile(task / (runs * blocks), k, std::min(kGemmDepthBlock, depth_ - k), t);
      }
    });
  }

  void PackTile(int64_t group, int64_t k, int64_t depth, int64_t tile) const {
    const int64_t row = tile * kernels_.mr;
    const int64_t rows = std::min(kernels_.mr, sum_.rows - row);
    const int64_t begin = group * sum_.weight_group + row * sum_.weight_row;
    E* to = PackedAt(group, k, tile, depth);
    if (sum_.weight_channel == taps_) {  // all taps in order: k are adjacent
      const char* at = static_cast<const char*>(sum_.weight) + BytesOf(sum_.dtype, begin + k);
      return kernels_.pack_a({at, sum_.weight_row, 1, element_}, rows, depth, to);
    }
    DispatchFloat(sum_.dtype, "convolution", [&](auto zero) {
      const auto* weight = static_cast<const decltype(zero)*>(sum_.weight) + begin;
      int64_t channel = k / taps_;
      int64_t tap = k % taps_;
      for (int64_t d = 0; d < depth; ++d, to += kernels_.mr) {
        const auto* from =
            weight + channel * sum_.weight_channel + sum_.taps[static_cast<size_t>(tap)].weight;
        for (int64_t r = 0; r < rows; ++r) to[r] = static_cast<E>(from[r * sum_.weight_row]);
        std::fill(to + rows, to + kernels_.mr, E{0});
        if (++tap == taps_) ++channel, tap = 0;
      }
    });
  }

  // Pixels of `panels` panels times rows of `tiles` tiles.
  void Task(int64_t group, int64_t panel, int64_t panels, int64_t tile, int64_t tiles) const {
    const int64_t mr = kernels_.mr, nr = kernels_.nr;
    const int64_t width = panels * nr;
    const int64_t begin = panel * nr;
    std::vector<PixelRuns> runs;
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t at = begin + p * nr;
      runs.emplace_back(sum_.grid, sum_.taps, at, std::min(nr, columns_ - at), nr);
    }
    const Gatherer gatherer = GathererOf(group);
    E* sums = sums_scratch.Get<E>(tiles * mr * width);
    const bool started = Start(group, tile * mr, tiles * mr, width, sums);
    for (int64_t k = 0; k < depth_; k += kGemmDepthBlock) {
      const int64_t depth = std::min(kGemmDepthBlock, depth_ - k);
      E* b = panel_scratch.Get<E>(nr * depth);
      for (int64_t p = 0; p < panels; ++p) {
        gatherer.Rows(runs[static_cast<size_t>(p)], k, depth, b, nr);
        for (int64_t t = 0; t < tiles; ++t) {
          kernels_.tile(depth, PackedAt(group, k, tile + t, depth), b,
                        sums + t * mr * width + p * nr, width, E{1}, started || k > 0);
        }
      }
    }
    Store(group, tile * mr, std::min(tiles * mr, sum_.rows - tile * mr), begin,
          std::min(width, columns_ - begin), sums, width);
  }

  Gatherer GathererOf(int64_t group) const {
    const int64_t plane = sum_.grid.in_h * sum_.grid.in_w;
    return {sum_.dtype,
            static_cast<const char*>(sum_.in) + BytesOf(sum_.dtype, group * sum_.channels * plane),
            plane, sum_.grid.step_w};
  }

  // Whether the sums begin with something: the bias, or zeros where no tap reads anything.
  bool Start(int64_t group, int64_t row, int64_t rows, int64_t width, E* sums) const {
    if (sum_.bias == nullptr && depth_ > 0) return false;
    for (int64_t r = 0; r < rows; ++r) {
      E value{0};
      if (sum_.bias != nullptr && row + r < sum_.rows) {
        const int64_t at = group * sum_.rows + row + r;
        kernels_.load_row(element_, static_cast<const char*>(sum_.bias) + BytesOf(sum_.dtype, at),
                          1, &value);
      }
      std::fill_n(sums + r * width, width, value);
    }
    return true;
  }

  void Store(int64_t group, int64_t row, int64_t rows, int64_t begin, int64_t count, const E* sums,
             int64_t stride) const {
    const TapGrid& grid = sum_.grid;
    const bool whole = sum_.out_w == 1 && sum_.out_h == grid.out_w;
    for (int64_t q = begin; q < begin + count;) {
      const int64_t pixel = q % grid.out_pixels();
      const int64_t w = pixel % grid.out_w;
      const int64_t run =
          std::min(begin + count - q, whole ? grid.out_pixels() - pixel : grid.out_w - w);
      const int64_t at = sum_.out_begin + q / grid.out_pixels() * sum_.out_image +
                         (group * sum_.rows + row) * sum_.out_row +
                         pixel / grid.out_w * sum_.out_h + w * sum_.out_w;
      StoreRun(rows, sums + q - begin, stride, run, at);
      q += run;
    }
  }

  void StoreRun(int64_t rows, const E* sums, int64_t stride, int64_t count, int64_t at) const {
    DispatchFloat(sum_.dtype, "convolution", [&](auto zero) {
      using T = decltype(zero);
      for (int64_t r = 0; r < rows; ++r) {
        T* to = static_cast<T*>(sum_.out) + at + r * sum_.out_row;
        const E* from = sums + r * stride;
        if (sum_.out_w == 1) {
          kernels_.store_row(element_, from, count, to);
        } else {
          for (int64_t i = 0; i < count; ++i) to[i * sum_.out_w] = static_cast<T>(from[i]);
        }
      }
    });
  }

  const TapSum& sum_;
  const GemmKernels<E>& kernels_;
  const GemmElement element_;
  const int64_t taps_;
  const int64_t depth_;
  const int64_t columns_;
  const int64_t panels_;
  const int64_t tiles_;
  E* weight_ = nullptr;
};

}  // namespace

void RunTapSum(const TapSum& sum) {
  if (sum.rows == 1 && sum.channels == 1) return RunDepthwise(sum);
  if (sum.dtype == DType::kFloat64) return TapProduct<double>(sum).Run();
  TapProduct<float>(sum).Run();
}

}  // namespace tessera
