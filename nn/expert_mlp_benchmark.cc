// SPDX-License-Identifier: Apache-2.0
// A mixture of experts beside the dense layer of equal active size, in turns.
//
//   bazel run -c opt //nn:expert_mlp_benchmark -- --benchmark_filter=Training
//
// Names are what of it (Forward: for inference; Training: forward and all gradients), tokens,
// hidden size, inner size of the dense layer, E and k; an expert's inner size is the dense one's by
// k. `ratio` is the median over the rounds of the mixture's time by the dense layer's.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "autograd/autograd.h"
#include "nn/expert_mlp.h"
#include "ops/elementwise/elementwise.h"
#include "ops/random/random.h"
#include "ops/reduction/reduction.h"

namespace tessera::nn {
namespace {

MlpConfig DenseConfig(int64_t hidden, int64_t inner) {
  return {.hidden_size = hidden,
          .inner_size = inner,
          .activation = Silu,
          .bias = false,
          .gate_name = "gate_proj",
          .up_name = "up_proj",
          .down_name = "down_proj"};
}

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void Run(benchmark::State& state, bool trains) {
  const int64_t tokens = state.range(0), hidden = state.range(1), inner = state.range(2);
  const int64_t experts = state.range(3), each = state.range(4);
  Mlp dense(DenseConfig(hidden, inner), Scope::Root({.seed = 1}));
  ExpertMlp mixture({.router = {.hidden_size = hidden,
                                .num_experts = experts,
                                .experts_per_token = each,
                                .weight_init = Init::Normal(1.0)},
                     .expert = DenseConfig(hidden, inner / each)},
                    Scope::Root({.seed = 2}));
  const Tensor data = Randn({1, tokens, hidden}, RandomKey::FromSeed(3));
  const Tensor x = trains ? RequireGrad(data) : data;
  const auto pass = [&](FeedForward& layer) {
    if (!trains) {
      const NoGrad no_grad;
      benchmark::DoNotOptimize(layer.Forward(x, {}).raw_data());
      return;
    }
    Backward(Sum(layer.Forward(x, {.training = true})));
    layer.ZeroGrad();
    SetGrad(x, Tensor());
  };
  std::vector<double> ratios;
  for (auto _ : state) {
    const double of_dense = Seconds([&] { pass(dense); });
    const double of_mixture = Seconds([&] { pass(mixture); });
    ratios.push_back(of_mixture / of_dense);
  }
  std::nth_element(ratios.begin(), ratios.begin() + std::ssize(ratios) / 2, ratios.end());
  state.counters["ratio"] = ratios[ratios.size() / 2];
}

void Sizes(benchmark::internal::Benchmark* run) {
  for (const int64_t experts : {4, 8, 16, 64}) {
    for (const int64_t each : {1, 2, 4, 8}) {
      if (each <= experts) run->Args({4096, 512, 1536, experts, each});
    }
  }
  run->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK_CAPTURE(Run, Forward, false)->Name("Forward")->Apply(Sizes);
BENCHMARK_CAPTURE(Run, Training, true)->Name("Training")->Apply(Sizes);

}  // namespace
}  // namespace tessera::nn

BENCHMARK_MAIN();
