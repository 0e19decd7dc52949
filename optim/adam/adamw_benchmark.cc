// SPDX-License-Identifier: Apache-2.0
// AdamW steps and gradient norms against the machine's memory bandwidth, on tensors of GPT-2's
// sizes (124M float32 parameters by default: beyond every cache).
//
//   bazel run //optim/adam:adamw_benchmark
//
// A step moves 28 bytes per float32 parameter (weights and both moments read and written, the
// gradient read), 30 per bfloat16 one (the weights are a float32 master and 2 bytes written); a
// norm moves 4. "Stream" moves 28 bytes per element with three additions, in the same pattern: what
// the memory gives. TESSERA_BENCHMARK_THREADS sets the threads (default: all cores);
// TESSERA_CPU_ISA lowers the instruction set.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "optim/adam/adam.h"
#include "optim/clip.h"

namespace tessera::optim {
namespace {

// Embedding, and per layer the four matrices and their biases and norms.
std::vector<Parameter> Gpt2Parameters(DType dtype) {
  std::vector<Shape> shapes = {{50257, 768}, {1024, 768}};
  for (int layer = 0; layer < 12; ++layer) {
    for (const Shape& shape :
         {Shape{768, 2304}, Shape{768, 768}, Shape{768, 3072}, Shape{3072, 768}, Shape{2304},
          Shape{768}, Shape{3072}, Shape{768}, Shape{768}, Shape{768}, Shape{768}, Shape{768}}) {
      shapes.push_back(shape);
    }
  }
  std::vector<Parameter> parameters;
  for (const Shape& shape : shapes) {
    const Tensor w = RequireGrad(Full(shape, 0.5, dtype));
    SetGrad(w, Full(shape, 0.25));
    parameters.push_back({Concat("p", parameters.size()), w});
  }
  return parameters;
}

int64_t ElementsOf(const std::vector<Parameter>& parameters) {
  int64_t n = 0;
  for (const Parameter& p : parameters) n += p.tensor.numel();
  return n;
}

void Report(benchmark::State& state, int64_t elements, int64_t bytes_per_element) {
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * static_cast<double>(elements * bytes_per_element),
                         benchmark::Counter::kIsIterationInvariantRate);
  state.counters["bytes/parameter"] = static_cast<double>(bytes_per_element);
}

void AdamWStep(benchmark::State& state, DType dtype) {
  AdamW optimizer({{.parameters = Gpt2Parameters(dtype), .weight_decay = 0.1}});
  for (auto _ : state) optimizer.Step();
  Report(state, ElementsOf(optimizer.parameters()), dtype == DType::kFloat32 ? 28 : 30);
}

void Norm(benchmark::State& state) {
  const std::vector<Parameter> parameters = Gpt2Parameters(DType::kFloat32);
  for (auto _ : state) benchmark::DoNotOptimize(ClipGradNorm(parameters, {.max_norm = 1.0}));
  Report(state, ElementsOf(parameters), 4);
}

// Four floats of any alignment.
typedef float Floats __attribute__((vector_size(16), aligned(4), may_alias));

void Stream(benchmark::State& state) {
  const std::vector<Parameter> parameters = Gpt2Parameters(DType::kFloat32);
  const int64_t n = ElementsOf(parameters) / 4 * 4;
  const Tensor a = Zeros({n}), b = Zeros({n}), c = Zeros({n}), d = Zeros({n});
  float* pa = a.data<float>();
  float* pb = b.data<float>();
  float* pc = c.data<float>();
  const float* pd = d.data<float>();
  for (auto _ : state) {
    ParallelFor(n, kUpdateChunk, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += 4) {
        const Floats g = *reinterpret_cast<const Floats*>(pd + i);
        *reinterpret_cast<Floats*>(pa + i) += g;
        *reinterpret_cast<Floats*>(pb + i) += g;
        *reinterpret_cast<Floats*>(pc + i) += g;
      }
    });
  }
  Report(state, n, 28);
}

}  // namespace
}  // namespace tessera::optim

int main(int argc, char** argv) {
  using namespace tessera;         // NOLINT(google-build-using-namespace): main only
  using namespace tessera::optim;  // NOLINT(google-build-using-namespace): main only
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (const char* threads = std::getenv("TESSERA_BENCHMARK_THREADS")) {
    SetNumThreads(std::max(1, std::atoi(threads)));
  }
  benchmark::AddCustomContext("threads", std::to_string(NumThreads()));
  benchmark::AddCustomContext("isa", std::string(CpuIsaName(ActiveIsa())));
  const auto add = [](const char* name, auto run) {
    benchmark::RegisterBenchmark(name, run)->Unit(benchmark::kMillisecond)->UseRealTime();
  };
  add("adamw/f32", [](benchmark::State& state) { AdamWStep(state, DType::kFloat32); });
  add("adamw/bf16", [](benchmark::State& state) { AdamWStep(state, DType::kBFloat16); });
  add("norm/f32", Norm);
  add("stream", Stream);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
