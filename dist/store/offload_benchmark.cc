// SPDX-License-Identifier: Apache-2.0
// The off-loaded optimizer's step against the machine's memory bandwidth: 124M float32 parameters
// of GPT-2's sizes under ZeRO-3, parameters and states in host memory, one rank.
//
//   bazel run //dist/store:offload_benchmark
//
// A step moves 28 bytes per float32 parameter (weights and both moments read and written, the
// gradient read), 30 per bfloat16 one. "Stream" moves 28 bytes per element with three additions in
// the same pattern, and "Triad" is STREAM's a = b + s * c (12 bytes): what the memory gives.
// "Gradients" is what FinishGradients does: they leave the device's buckets for host memory (8
// bytes).
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/autograd.h"
#include "core/thread_pool.h"
#include "dist/store/parameter_store.h"
#include "optim/adam/adam.h"

namespace tessera::dist {
namespace {

constexpr int64_t kElements = 124'000'000;

// Blocks of 7M elements, as GPT-2's are.
class Blocks : public nn::Module {
 public:
  explicit Blocks(const nn::Scope& scope) : Module(scope) {
    for (int i = 0; i < 17; ++i) {
      blocks_.push_back(std::make_unique<Block>(Child(Concat("h.", i))));
    }
  }

 private:
  class Block : public nn::Module {
   public:
    explicit Block(const nn::Scope& scope) : Module(scope) {
      for (const auto& [name, shape] :
           std::vector<std::pair<const char*, Shape>>{{"c_attn", {768, 2304}},
                                                      {"c_proj", {768, 768}},
                                                      {"c_fc", {768, 3072}},
                                                      {"c_out", {3072, 768}},
                                                      {"bias", {3072}},
                                                      {"ln", {768}}}) {
        AddParameter(name, Placement::Whole(shape), nn::Init::Ones());
      }
    }
  };
  std::vector<std::unique_ptr<Block>> blocks_;
};

struct Offloaded {
  explicit Offloaded(DType dtype) : blocks(nn::Scope::Root({.dtype = dtype})) {
    std::vector<optim::ParameterGroup> groups(1);
    groups[0].weight_decay = 0.1;
    for (nn::Parameter* p : blocks.Parameters()) {
      groups[0].parameters.push_back({p->name, p->tensor, {}});
      elements += p->tensor.numel();
    }
    store = std::make_unique<ParameterStore>(
        blocks, std::move(groups),
        [](std::vector<optim::ParameterGroup> g) {
          return std::make_unique<optim::AdamW>(std::move(g), optim::AdamOptions{});
        },
        StoreGroups{},
        ZeroOptions{.stage = 3, .offload_optimizer = true, .offload_parameters = true});
  }
  // Gradients as a backward pass leaves them.
  void Collect() {
    store->BeginStep(1);
    store->BeginMicroBatch(0);
    for (nn::Parameter* p : blocks.Parameters()) {
      SetGrad(p->tensor, Full(p->tensor.shape(), 0.25, GradDType(p->tensor)));
    }
  }
  Blocks blocks;
  std::unique_ptr<ParameterStore> store;
  int64_t elements = 0;
};

void Report(benchmark::State& state, int64_t elements, int64_t bytes) {
  state.counters["GB/s"] = benchmark::Counter(1e-9 * static_cast<double>(elements * bytes),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

template <typename Body>
void Timed(benchmark::State& state, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  state.SetIterationTime(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

void Step(benchmark::State& state, DType dtype) {
  Offloaded model(dtype);
  for (auto _ : state) {
    model.Collect();
    model.store->FinishGradients();
    Timed(state, [&] { model.store->Step(); });
  }
  Report(state, model.elements, dtype == DType::kFloat32 ? 28 : 30);
}

void Gradients(benchmark::State& state) {
  Offloaded model(DType::kFloat32);
  for (auto _ : state) {
    model.Collect();
    Timed(state, [&] { model.store->FinishGradients(); });
    model.store->Step();
  }
  Report(state, model.elements, 8);
}

typedef float Floats __attribute__((vector_size(64), aligned(4), may_alias));

void Stream(benchmark::State& state) {
  const Tensor a = Zeros({kElements}), b = Zeros({kElements}), c = Zeros({kElements}),
               d = Zeros({kElements});
  float* pa = a.data<float>();
  float* pb = b.data<float>();
  float* pc = c.data<float>();
  const float* pd = d.data<float>();
  for (auto _ : state) {
    Timed(state, [&] {
      ParallelFor(kElements / 16384, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first * 16384; i < last * 16384; i += 16) {
          const Floats x = *reinterpret_cast<const Floats*>(pd + i);
          *reinterpret_cast<Floats*>(pa + i) += x;
          *reinterpret_cast<Floats*>(pb + i) += x;
          *reinterpret_cast<Floats*>(pc + i) += x;
        }
      });
    });
  }
  Report(state, kElements / 16384 * 16384, 28);
}

void Triad(benchmark::State& state) {
  const Tensor a = Zeros({kElements}), b = Zeros({kElements}), c = Zeros({kElements});
  float* pa = a.data<float>();
  const float* pb = b.data<float>();
  const float* pc = c.data<float>();
  for (auto _ : state) {
    Timed(state, [&] {
      ParallelFor(kElements / 16384, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first * 16384; i < last * 16384; i += 16) {
          *reinterpret_cast<Floats*>(pa + i) = *reinterpret_cast<const Floats*>(pb + i) +
                                               3.0f * *reinterpret_cast<const Floats*>(pc + i);
        }
      });
    });
  }
  Report(state, kElements / 16384 * 16384, 12);
}

BENCHMARK_CAPTURE(Step, float32, DType::kFloat32)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Stream)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, bfloat16, DType::kBFloat16)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Triad)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Gradients)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera::dist
