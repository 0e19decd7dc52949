// SPDX-License-Identifier: Apache-2.0
// The convolutions of ResNet-18: forward, and gradients of input and weight. Beside PyTorch's:
// bench/convolution.py.
//
//   bazel run -c opt //ops/convolution:convolution_benchmark
#include <benchmark/benchmark.h>

#include "core/tensor.h"
#include "ops/convolution/convolution_parts.h"

namespace tessera {
namespace {

// Arguments: batch, channels in, channels out, size of the picture, kernel, stride, groups.
struct Problem {
  explicit Problem(const benchmark::State& state)
      : groups(state.range(6)),
        shape{state.range(0),          groups,     state.range(1) / groups,
              state.range(2) / groups, Dim(state), Dim(state)},
        x(Full({shape.batch, state.range(1), shape.h.in, shape.w.in}, 0.5)),
        weight(Full({state.range(2), shape.in_channels, shape.h.kernel, shape.w.kernel}, 0.25)),
        dy(Full({shape.batch, state.range(2), shape.h.out, shape.w.out}, 0.125)) {}

  static ConvDim Dim(const benchmark::State& state) {
    const int64_t size = state.range(3), kernel = state.range(4), stride = state.range(5);
    const int64_t padding = kernel / 2;
    return {size, (size + 2 * padding - kernel) / stride + 1, kernel, stride, padding, 1};
  }
  void Count(benchmark::State& state) const {
    state.counters["GFLOP/s"] = benchmark::Counter(
        2e-9 * static_cast<double>(dy.numel() * shape.in_channels * shape.taps()),
        benchmark::Counter::kIsIterationInvariantRate);
  }

  int64_t groups;
  ConvShape shape;
  Tensor x, weight, dy;
};

void Forward(benchmark::State& state) {
  const Problem p(state);
  for (auto _ : state) ConvForward(p.shape, p.x, p.weight, Tensor(), p.dy.shape());
  p.Count(state);
}
void InputGrad(benchmark::State& state) {
  const Problem p(state);
  for (auto _ : state) ConvInputGrad(p.shape, p.dy, p.weight, Tensor(), p.x.shape());
  p.Count(state);
}
void WeightGrad(benchmark::State& state) {
  const Problem p(state);
  for (auto _ : state) ConvWeightGrad(p.shape, p.x, p.dy, DType::kFloat32, p.weight.shape());
  p.Count(state);
}

void Shapes(benchmark::internal::Benchmark* b) {
  for (const int64_t size : {64, 224}) {
    const int64_t n = size == 64 ? 32 : 8;
    b->Args({n, 3, 64, size, 7, 2, 1});
    b->Args({n, 64, 64, size / 4, 3, 1, 1});
    b->Args({n, 64, 128, size / 4, 3, 2, 1});
    b->Args({n, 64, 128, size / 4, 1, 2, 1});
    b->Args({n, 128, 128, size / 8, 3, 1, 1});
    b->Args({n, 256, 256, size / 16, 3, 1, 1});
    b->Args({n, 512, 512, size / 32, 3, 1, 1});
  }
  b->Args({8, 256, 64, 56, 1, 1, 1});
  b->Args({8, 128, 128, 28, 3, 1, 128});
  b->Args({8, 128, 128, 28, 3, 2, 128});
  b->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(Forward)->Apply(Shapes);
BENCHMARK(InputGrad)->Apply(Shapes);
BENCHMARK(WeightGrad)->Apply(Shapes);

}  // namespace
}  // namespace tessera
