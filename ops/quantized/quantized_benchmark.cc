// SPDX-License-Identifier: Apache-2.0
// Products with quantised weights, in bytes of weights a second. Names: type / rows of x / outputs
// / columns; weights are as many matrices as do not fit a cache.
#include <benchmark/benchmark.h>

#include <vector>

#include "core/random.h"
#include "core/thread_pool.h"
#include "ops/quantized/quantized_matrix.h"

namespace tessera {
namespace {

void Products(benchmark::State& state) {
  const auto type = static_cast<QuantType>(state.range(0));
  const int64_t rows = state.range(1), outputs = state.range(2), columns = state.range(3);
  const int64_t bytes = outputs * QuantRowBytes(type, columns);
  std::vector<QuantizedMatrix> weights;
  for (int64_t all = 0; all < (int64_t{256} << 20); all += bytes) {
    weights.push_back(
        {type, columns, Empty({outputs, QuantRowBytes(type, columns)}, DType::kUInt8)});
    Fill(weights.back().bytes, 17);
  }
  Tensor x = Empty({rows, columns}, DType::kFloat32);
  Fill(x, 0.5);
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(QuantizedLinear(x, weights[i++ % weights.size()], {}));
  }
  state.SetLabel(std::string(QuantTypeName(type)));
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["products"] =
      benchmark::Counter(static_cast<double>(state.iterations() * rows * outputs * columns),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(Products)
    ->ArgsProduct({{0, 1, 2}, {1, 4, 8, 512}, {3072}, {768}})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, 8}, {5632}, {2048}})
    ->UseRealTime();

}  // namespace
}  // namespace tessera
