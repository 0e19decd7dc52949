// SPDX-License-Identifier: Apache-2.0
// The gradient of a convolution's weight on the CPU: dW[o, k] = the sum over pixels of
// dy[o, pixel] columns[k, pixel], k = channel * taps + tap. Tasks are slices of the pixels (of all
// pictures) times columns k; a slice goes through its pixels in blocks of kGemmDepthBlock.
#include <algorithm>

#include "core/cpu/scratch.h"
#include "core/thread_pool.h"
#include "ops/convolution/conv_taps.h"
#include "ops/convolution/convolution_kernel.h"
#include "ops/convolution/depthwise.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/gemm_tiles.h"

namespace tessera {
namespace {

// Panels of columns that a task takes.
constexpr int64_t kGradPanels = 5;

constinit thread_local ThreadScratch dy_scratch;
constinit thread_local ThreadScratch rows_scratch;
constinit thread_local ThreadScratch grad_panel_scratch;
constinit thread_local ThreadScratch grad_sums_scratch;

template <typename E>
class WeightProduct {
 public:
  explicit WeightProduct(const ConvWeightGradArgs& args)
      : args_(args),
        shape_(args.shape),
        kernels_(SelectGemmKernels<E>()),
        grid_(ForwardGrid(shape_)),
        taps_(ForwardTaps(shape_)),
        columns_(shape_.in_channels * shape_.taps()),
        tiles_(CeilDiv(shape_.out_channels, kernels_.mr)) {}

  void Run() const {
    const int64_t all_panels = CeilDiv(columns_, kernels_.nr);
    const int64_t others = shape_.groups * args_.slices;
    const int64_t wanted = int64_t{4} * NumThreads();
    const int64_t panels = std::clamp(all_panels * others / wanted, int64_t{1}, kGradPanels);
    const int64_t column_tasks = CeilDiv(all_panels, panels);
    const int64_t pixels = shape_.batch * shape_.out_pixels();
    const int64_t per_slice = CeilDiv(pixels, args_.slices);
    ParallelFor(others * column_tasks, 1, [&](int64_t task, int64_t) {
      const int64_t slice = task / column_tasks % args_.slices;
      const int64_t k = task % column_tasks * panels * kernels_.nr;
      const int64_t begin = std::min(pixels, slice * per_slice);
      Task(task / (column_tasks * args_.slices), slice, begin, std::min(pixels, begin + per_slice),
           k, std::min(panels * kernels_.nr, columns_ - k));
    });
  }

 private:
  // Pixels [begin, end) for columns [k, k + count).
  void Task(int64_t group, int64_t slice, int64_t begin, int64_t end, int64_t k,
            int64_t count) const {
    const int64_t mr = kernels_.mr, nr = kernels_.nr;
    const int64_t width = CeilDiv(count, nr) * nr;
    const Gatherer gatherer = GathererOf(group);
    E* sums = grad_sums_scratch.Get<E>(tiles_ * mr * width);
    std::fill_n(sums, tiles_ * mr * width, E{0});
    E* rows = rows_scratch.Get<E>(nr * kGemmDepthBlock);
    E* panel = grad_panel_scratch.Get<E>(nr * kGemmDepthBlock);
    for (int64_t q = begin; q < end; q += kGemmDepthBlock) {
      const int64_t depth = std::min(kGemmDepthBlock, end - q);
      const E* a = PackDy(group, q, depth);
      const PixelRuns runs(grid_, taps_, q, depth, depth);
      for (int64_t j = 0; j < count; j += nr) {
        const int64_t n = std::min(nr, count - j);
        gatherer.Rows(runs, k + j, n, rows, kGemmDepthBlock);
        kernels_.pack_b({rows, kGemmDepthBlock, 1, GemmElementOf(DTypeOf<E>::value)}, n, depth,
                        panel);
        for (int64_t t = 0; t < tiles_; ++t) {
          kernels_.tile(depth, a + t * mr * depth, panel, sums + t * mr * width + j, width, E{1},
                        true);
        }
      }
    }
    E* partial = static_cast<E*>(args_.partial) +
                 (slice * shape_.groups + group) * shape_.out_channels * columns_ + k;
    for (int64_t o = 0; o < shape_.out_channels; ++o) {
      std::copy_n(sums + o * width, count, partial + o * columns_);
    }
  }

  // Pixels [q, q + depth) of dy as tiles of output channels: [tile][depth][mr].
  const E* PackDy(int64_t group, int64_t q, int64_t depth) const {
    const int64_t mr = kernels_.mr;
    const int64_t pixels = shape_.out_pixels();
    E* packed = dy_scratch.Get<E>(tiles_ * mr * depth);
    for (int64_t d = 0; d < depth;) {  // picture by picture
      const int64_t image = (q + d) / pixels;
      const int64_t pixel = (q + d) % pixels;
      const int64_t run = std::min(depth - d, pixels - pixel);
      for (int64_t t = 0; t < tiles_; ++t) {
        const int64_t channel = group * shape_.out_channels + t * mr;
        const int64_t at = (image * shape_.groups * shape_.out_channels + channel) * pixels + pixel;
        kernels_.pack_a({static_cast<const char*>(args_.dy) + BytesOf(args_.dtype, at), pixels, 1,
                         GemmElementOf(args_.dtype)},
                        std::min(mr, shape_.out_channels - t * mr), run,
                        packed + (t * depth + d) * mr);
      }
      d += run;
    }
    return packed;
  }

  Gatherer GathererOf(int64_t group) const {
    const int64_t at = group * shape_.in_channels * shape_.in_pixels();
    return {args_.dtype, static_cast<const char*>(args_.x) + BytesOf(args_.dtype, at),
            shape_.in_pixels(), grid_.step_w};
  }

  const ConvWeightGradArgs& args_;
  const ConvShape& shape_;
  const GemmKernels<E>& kernels_;
  const TapGrid grid_;
  const std::vector<Tap> taps_;
  const int64_t columns_;
  const int64_t tiles_;
};

void WeightGradCpu(const ConvWeightGradArgs& args) {
  if (args.shape.depthwise()) return DepthwiseWeightGrad(args);
  if (args.dtype == DType::kFloat64) return WeightProduct<double>(args).Run();
  WeightProduct<float>(args).Run();
}

TESSERA_REGISTER_KERNEL(conv_weight_grad, DeviceType::kCpu, WeightGradCpu);

}  // namespace
}  // namespace tessera
