// SPDX-License-Identifier: Apache-2.0
// Attention at the sizes of GPT-2 124M (12 heads of 64): training passes and one decoding step.
//
//   bazel run -c opt //ops/attention:flash_cpu_benchmark
//
// GFLOP/s counts the products of the causal half: forward 2 * 2 B H T^2/2 D, backward 2.5 times it.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "ops/attention/flash_cpu.h"

namespace tessera {
namespace {

constexpr int64_t kHeads = 12, kHeadDim = 64;

std::vector<float> Normal(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

struct Problem {
  std::vector<float> qkv, o, lse, d_o, d_qkv;
  FlashBackwardArgs args;

  Problem(int64_t batch, int64_t length, float dropout) {
    const int64_t width = kHeads * kHeadDim;
    qkv = Normal(batch * length * 3 * width, 1);
    d_o = Normal(batch * length * width, 2);
    o.resize(static_cast<size_t>(batch * length * width));
    lse.resize(static_cast<size_t>(batch * kHeads * length));
    d_qkv.resize(qkv.size());
    FlashArgs& f = args.forward;
    f.batch = batch;
    f.heads = f.kv_heads = kHeads;
    f.q_len = f.k_len = length;
    f.head_dim = kHeadDim;
    f.q = qkv.data();
    f.k = qkv.data() + width;
    f.v = qkv.data() + 2 * width;
    f.q_stride = f.k_stride = f.v_stride = {length * 3 * width, kHeadDim, 3 * width};
    f.o = o.data();
    f.o_stride = {length * width, kHeadDim, width};
    f.lse = lse.data();
    f.scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
    f.causal = true;
    f.dropout.p = dropout;
    args.d_o = d_o.data();
    args.d_o_stride = f.o_stride;
    args.dq = d_qkv.data();
    args.dk = d_qkv.data() + width;
    args.dv = d_qkv.data() + 2 * width;
    args.dq_stride = args.dk_stride = args.dv_stride = f.q_stride;
  }
};

void Report(benchmark::State& state, double products) {
  const double length = static_cast<double>(state.range(1));
  state.counters["GFLOP/s"] =
      benchmark::Counter(1e-9 * products * static_cast<double>(state.range(0) * kHeads) * length *
                             length / 2 * kHeadDim,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Forward(benchmark::State& state) {
  Problem p(state.range(0), state.range(1), static_cast<float>(state.range(2)) / 100);
  for (auto _ : state) FlashForward(p.args.forward);
  Report(state, 4);
}

void BM_Backward(benchmark::State& state) {
  Problem p(state.range(0), state.range(1), static_cast<float>(state.range(2)) / 100);
  FlashForward(p.args.forward);
  for (auto _ : state) FlashBackward(p.args);
  Report(state, 10);
}

// One query against a cache of range(1) keys.
void BM_Decode(benchmark::State& state) {
  Problem p(state.range(0), state.range(1), 0);
  p.args.forward.q_len = 1;
  p.args.forward.query_offset = state.range(1) - 1;
  for (auto _ : state) FlashForward(p.args.forward);
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) * kHeads * kHeadDim *
                          2 * static_cast<int64_t>(sizeof(float)));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"B", "T", "dropout%"})->Unit(benchmark::kMillisecond)->UseRealTime();
  for (int dropout : {0, 10}) {
    benchmark->Args({4, 256, dropout})->Args({1, 1024, dropout});
  }
}

BENCHMARK(BM_Forward)->Apply(Sizes);
BENCHMARK(BM_Backward)->Apply(Sizes);
BENCHMARK(BM_Decode)
    ->ArgNames({"B", "T"})
    ->Args({1, 256})
    ->Args({1, 1024})
    ->Args({8, 1024})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace tessera
