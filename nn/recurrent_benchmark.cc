// SPDX-License-Identifier: Apache-2.0
// Recurrent layers over whole sequences; bench/recurrent.py measures PyTorch's beside them.
//
//   bazel run -c opt //nn:recurrent_benchmark -- --benchmark_filter=Lstm
//
// Names are the layer, what of it (Forward: for inference; Training: forward and all gradients),
// batch, steps, inputs, hidden.
#include <benchmark/benchmark.h>

#include <vector>

#include "autograd/autograd.h"
#include "nn/recurrent.h"
#include "ops/random/random.h"
#include "ops/reduction/reduction.h"

namespace tessera::nn {
namespace {

template <typename Layer>
Layer MakeLayer(const benchmark::State& state) {
  return Layer({.input_size = state.range(2), .hidden_size = state.range(3)},
               Scope::Root({.seed = 1}));
}

Tensor MakeInput(const benchmark::State& state) {
  return Randn({state.range(0), state.range(1), state.range(2)}, RandomKey::FromSeed(2));
}

template <typename Layer>
void Forward(benchmark::State& state) {
  const Layer layer = MakeLayer<Layer>(state);
  const Tensor x = MakeInput(state);
  const NoGrad no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(layer.Forward(x).output.raw_data());
}

template <typename Layer>
void Training(benchmark::State& state) {
  Layer layer = MakeLayer<Layer>(state);
  const Tensor x = RequireGrad(MakeInput(state));
  for (auto _ : state) {
    Backward(Sum(layer.Forward(x, {.training = true}).output));
    layer.VisitParameters([](Parameter& p) { SetGrad(p.tensor, Tensor()); });
    SetGrad(x, Tensor());
  }
}

void Sizes(benchmark::internal::Benchmark* run) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{1, 50, 256, 256},
                                                             {8, 50, 256, 256},
                                                             {32, 50, 256, 256},
                                                             {32, 50, 512, 512},
                                                             {64, 30, 128, 1024},
                                                             {128, 50, 128, 128}}) {
    run->Args(sizes);
  }
  run->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK_TEMPLATE(Forward, Lstm)->Name("Lstm/Forward")->Apply(Sizes);
BENCHMARK_TEMPLATE(Training, Lstm)->Name("Lstm/Training")->Apply(Sizes);
BENCHMARK_TEMPLATE(Forward, Gru)->Name("Gru/Forward")->Apply(Sizes);
BENCHMARK_TEMPLATE(Training, Gru)->Name("Gru/Training")->Apply(Sizes);

}  // namespace
}  // namespace tessera::nn

BENCHMARK_MAIN();
