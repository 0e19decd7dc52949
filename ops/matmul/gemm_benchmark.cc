// SPDX-License-Identifier: Apache-2.0
// Gemm at the shapes of training GPT-2 124M with 4 x 256 tokens, forward and both gradients, at
// 1024^3 and at those of generating one token.
//
//   bazel run -c opt //ops/matmul:gemm_benchmark -- --benchmark_filter=f32
//
// TESSERA_BENCHMARK_THREADS sets the threads (default: all cores); TESSERA_CPU_ISA lowers the
// instruction set, TESSERA_CPU_AMX=1 uses AMX for bf16. TESSERA_PEER_BLAS=<libopenblas.so> adds the
// same products by that library's cblas_sgemm (its threads: OPENBLAS_NUM_THREADS); the two then
// alternate in one run with
//   --benchmark_enable_random_interleaving=true --benchmark_repetitions=9
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "core/cpu_amx.h"
#include "core/cpu_isa.h"
#include "core/thread_pool.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/gemm_kernel.h"
#include "ops/matmul/gemm_tiles.h"

namespace tessera {
namespace {

struct Sizes {
  const char* name;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

const Sizes kShapes[] = {
    {"square", 1024, 1024, 1024, false, false},     {"qkv", 1024, 2304, 768, false, false},
    {"qkv_dx", 1024, 768, 2304, false, true},       {"qkv_dw", 768, 2304, 1024, true, false},
    {"proj", 1024, 768, 768, false, false},         {"proj_dx", 1024, 768, 768, false, true},
    {"proj_dw", 768, 768, 1024, true, false},       {"fc", 1024, 3072, 768, false, false},
    {"fc_dx", 1024, 768, 3072, false, true},        {"fc_dw", 768, 3072, 1024, true, false},
    {"out", 1024, 768, 3072, false, false},         {"out_dx", 1024, 3072, 768, false, true},
    {"out_dw", 3072, 768, 1024, true, false},       {"logits", 1024, 50257, 768, false, true},
    {"logits_dx", 1024, 768, 50257, false, false},  {"logits_dw", 50257, 768, 1024, true, false},
    {"decode_fc", 1, 3072, 768, false, false},      {"decode_logits", 1, 50257, 768, false, true},
    {"decode4_logits", 4, 50257, 768, false, true}, {"decode8_fc", 8, 3072, 768, false, false},
    {"decode8_logits", 8, 50257, 768, false, true},
};

// cblas_sgemm with 32- or 64-bit integers.
struct Peer {
  using Fn32 = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                        float, float*, int);
  using Fn64 = void (*)(int, int, int, int64_t, int64_t, int64_t, float, const float*, int64_t,
                        const float*, int64_t, float, float*, int64_t);
  Fn32 fn32 = nullptr;
  Fn64 fn64 = nullptr;

  void operator()(const Sizes& s, const float* a, const float* b, float* c) const {
    constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
    const int ta = s.transpose_a ? kTransposed : kPlain;
    const int tb = s.transpose_b ? kTransposed : kPlain;
    const int64_t lda = s.transpose_a ? s.m : s.k, ldb = s.transpose_b ? s.k : s.n;
    if (fn64 != nullptr) {
      fn64(kRowMajor, ta, tb, s.m, s.n, s.k, 1.0f, a, lda, b, ldb, 0.0f, c, s.n);
    } else {
      fn32(kRowMajor, ta, tb, static_cast<int>(s.m), static_cast<int>(s.n), static_cast<int>(s.k),
           1.0f, a, static_cast<int>(lda), b, static_cast<int>(ldb), 0.0f, c,
           static_cast<int>(s.n));
    }
  }
};

bool OpenPeer(const char* path, Peer* peer) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "error: %s\n", dlerror());
    return false;
  }
  for (const char* symbol : {"scipy_cblas_sgemm64_", "cblas_sgemm64_", "cblas_sgemm_64"}) {
    peer->fn64 = reinterpret_cast<Peer::Fn64>(dlsym(library, symbol));
    if (peer->fn64 != nullptr) return true;
  }
  peer->fn32 = reinterpret_cast<Peer::Fn32>(dlsym(library, "cblas_sgemm"));
  if (peer->fn32 == nullptr) std::fprintf(stderr, "error: %s has no cblas_sgemm\n", path);
  return peer->fn32 != nullptr;
}

std::vector<float> Uniform(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = uniform(random);
  return x;
}

void Report(benchmark::State& state, const Sizes& s) {
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k),
      benchmark::Counter::kIsIterationInvariantRate);
}

void RunGemm(benchmark::State& state, const Sizes& s, DType dtype) {
  const auto convert = [dtype](const std::vector<float>& x) {
    std::vector<char> bytes(x.size() * DTypeSize(dtype));
    DispatchFloat(dtype, "benchmark", [&](auto zero) {
      using T = decltype(zero);
      for (size_t i = 0; i < x.size(); ++i) {
        const T value = T(x[i]);
        std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
      }
    });
    return bytes;
  };
  const std::vector<char> a = convert(Uniform(s.m * s.k, 1)), b = convert(Uniform(s.k * s.n, 2));
  std::vector<char> c(static_cast<size_t>(s.m * s.n) * DTypeSize(dtype));
  GemmArgs args;
  args.m = s.m;
  args.n = s.n;
  args.k = s.k;
  args.a = a.data();
  args.a_row_stride = s.transpose_a ? 1 : s.k;
  args.a_col_stride = s.transpose_a ? s.m : 1;
  args.b = b.data();
  args.b_row_stride = s.transpose_b ? 1 : s.n;
  args.b_col_stride = s.transpose_b ? s.k : 1;
  args.c = c.data();
  args.c_row_stride = s.n;
  args.a_dtype = args.b_dtype = args.c_dtype = dtype;
  for (auto _ : state) Gemm(args);
  Report(state, s);
}

void RunPeer(benchmark::State& state, const Sizes& s, const Peer& peer) {
  const std::vector<float> a = Uniform(s.m * s.k, 1), b = Uniform(s.k * s.n, 2);
  std::vector<float> c(static_cast<size_t>(s.m * s.n));
  for (auto _ : state) peer(s, a.data(), b.data(), c.data());
  Report(state, s);
  // OpenBLAS' threads spin for a while after a call, on cores that the next benchmark needs.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

constexpr int64_t kDepth = 128;

// One core's tile product on operands in its first-level cache: what a core can reach at all.
// `packed` elements hold kDepth indices of k.
void RunTile(benchmark::State& state, const GemmKernels<float>& kernels, int64_t packed) {
  constexpr int64_t kTimes = 1000;
  const std::vector<float> a = Uniform(kernels.mr * packed, 1), b = Uniform(kernels.nr * packed, 2);
  std::vector<float> c(static_cast<size_t>(kernels.mr * kernels.nr));
  if (kernels.enter != nullptr) kernels.enter();
  for (auto _ : state) {
    for (int64_t i = 0; i < kTimes; ++i) {
      kernels.tile(packed, a.data(), b.data(), c.data(), kernels.nr, 1.0f, false);
    }
  }
  if (kernels.leave != nullptr) kernels.leave();
  Report(state, {"tile", kernels.mr * kTimes, kernels.nr, kDepth, false, false});
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;  // NOLINT(google-build-using-namespace): main only
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (const char* threads = std::getenv("TESSERA_BENCHMARK_THREADS")) {
    SetNumThreads(std::max(1, std::atoi(threads)));
  }
  for (const Status& status : {CheckIsaEnvironment(), CheckAmxEnvironment()}) {
    if (!status.ok()) return std::fprintf(stderr, "error: %s\n", Message(status).c_str()), 2;
  }
  Peer peer;
  const char* path = std::getenv("TESSERA_PEER_BLAS");
  if (path != nullptr && !OpenPeer(path, &peer)) return 1;
  benchmark::AddCustomContext("threads", std::to_string(NumThreads()));
  benchmark::AddCustomContext("isa", std::string(CpuIsaName(ActiveIsa())));
  benchmark::AddCustomContext("amx", ActiveAmx() ? "1" : "0");
  const GemmKernels<float>& pairs = SelectGemmPairKernels();
  benchmark::RegisterBenchmark("tile/f32", RunTile, SelectGemmKernels<float>(), kDepth)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  benchmark::RegisterBenchmark("tile/bf16", RunTile, pairs, kDepth / 2 * pairs.pair_elements)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  for (const Sizes& shape : kShapes) {
    const auto add = [&](const std::string& what, auto run) {
      benchmark::RegisterBenchmark((std::string(shape.name) + "/" + what).c_str(), run)
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    };
    add("f32", [&shape](benchmark::State& state) { RunGemm(state, shape, DType::kFloat32); });
    if (path != nullptr) {
      add("f32_peer", [&](benchmark::State& state) { RunPeer(state, shape, peer); });
    }
    add("bf16", [&shape](benchmark::State& state) { RunGemm(state, shape, DType::kBFloat16); });
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
