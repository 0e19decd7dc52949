// Products with quantised weights, in bytes of weights a second. Names: type / rows of x / outputs
// / columns; weights are as many matrices as do not fit a cache.
#include <benchmark/benchmark.h>

#include <vector>

#include "core/random.h"
#include "core/thread_pool.h"
#include "ops/quantized/quantized_matrix.h"

namespace tessera {
namespace {

// All threads read a buffer, as fast as sums of its words go.
void Read(benchmark::State& state) {
  const int64_t bytes = state.range(0) << 20;
  constexpr int64_t kChunk = 1 << 20;
  const Tensor buffer = Zeros({bytes}, DType::kUInt8);
  const auto* const words = static_cast<const uint64_t*>(buffer.raw_data());
  std::vector<uint64_t> sums(static_cast<size_t>(bytes / kChunk));
  for (auto _ : state) {
    ParallelFor(bytes / 8, kChunk / 8, [&](int64_t begin, int64_t end) {
      uint64_t sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += words[i];
      sums[static_cast<size_t>(begin / (kChunk / 8))] = sum;
    });
    benchmark::DoNotOptimize(sums.data());
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}
BENCHMARK(Read)->Arg(128)->Arg(512)->UseRealTime();

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
    ->ArgsProduct({{0, 1, 2}, {1, 8}, {5632}, {2048}})
    ->UseRealTime();

}  // namespace
}  // namespace tessera
