// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/peaks.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>

#include "core/cpu/every_isa.h"
#include "core/cpu/peak_loops.h"
#include "core/cpu_amx.h"
#include "core/cpu_isa.h"

namespace tessera {
namespace {

constexpr int kRuns = 5;
constexpr double kSecondsOfRun = 0.01;

// Loops leave their results here, so that none of them is left out.
std::atomic<double> kept{0};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The most that `threads` threads together do in a second, where body(thread, n) does n * `each`.
double BestRate(int threads, double each, const std::function<void(int, int64_t)>& body) {
  int64_t rounds = 1;
  for (double seconds = 0; seconds < kSecondsOfRun / 4; rounds *= 2) {
    const double begin = Now();
    body(0, rounds);
    seconds = Now() - begin;
  }
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::barrier begin_together(threads);
    std::vector<double> begins(threads);
    std::vector<double> ends(threads);
    const auto work = [&](int thread) {
      begin_together.arrive_and_wait();
      begins[thread] = Now();
      body(thread, rounds);
      ends[thread] = Now();
    };
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& other : others) other.join();
    const double seconds = *std::max_element(ends.begin(), ends.end()) -
                           *std::min_element(begins.begin(), begins.end());
    best = std::max(best, each * static_cast<double>(rounds) * threads / seconds);
  }
  return best;
}

double BestProducts(int threads, const ProductLoop& loop) {
  return BestRate(threads, static_cast<double>(loop.flops_per_round),
                  [&](int, int64_t rounds) {
                    kept.store(loop.run(64 * rounds), std::memory_order_relaxed);
                  }) *
         64;
}

// Each thread reads, and then writes, `floats` numbers of its own.
void MeasureLevel(int threads, int64_t floats, const PeakLoops& loops, CpuPeaks::Level* level) {
  std::vector<std::vector<float>> buffers(threads);
  for (std::vector<float>& buffer : buffers) buffer.assign(floats, 1.0f);
  const double bytes = static_cast<double>(floats) * sizeof(float);
  level->read = BestRate(threads, bytes, [&](int thread, int64_t rounds) {
    for (int64_t i = 0; i < rounds; ++i) {
      const float sum = loops.read(buffers[thread].data(), floats);
      kept.store(static_cast<double>(sum), std::memory_order_relaxed);
    }
  });
  level->write = BestRate(threads, bytes, [&](int thread, int64_t rounds) {
    for (int64_t i = 0; i < rounds; ++i) loops.write(buffers[thread].data(), floats);
  });
}

}  // namespace

double CpuPeaks::ProductRate(DType dtype) const {
  if (dtype == DType::kFloat64) return fma_flops / 2;
  if (dtype != DType::kBFloat16) return fma_flops;
  return tiles_flops > 0 ? tiles_flops : pairs_flops > 0 ? pairs_flops : fma_flops;
}

double CpuPeaks::ReadBandwidth(double bytes) const {
  for (const Level& level : levels) {
    if (bytes <= static_cast<double>(level.bytes)) return level.read;
  }
  return levels.back().read;
}

double CpuPeaks::LeastSeconds(const KernelWork& work) const {
  return std::max(work.flops / ProductRate(work.products), work.bytes / ReadBandwidth(work.bytes));
}

CpuPeaks MeasurePeaks(int threads) {
  constexpr IsaTable<const PeakLoops> kLoops{TESSERA_FOR_EVERY_ISA(kPeakLoops)};
  const PeakLoops& loops = *kLoops.Select();
  CpuPeaks peaks;
  peaks.threads = threads;
  peaks.fma_flops = BestProducts(threads, loops.products);
#if defined(__x86_64__)
#if defined(__x86_64__)
  if (ActiveIsa() >= CpuIsa::kAvx512Bf16) {
    peaks.pairs_flops = BestProducts(threads, avx512bf16::kPairProducts);
  }
  if (ActiveAmx()) peaks.tiles_flops = BestProducts(threads, amx::kTileProducts);
#endif
#endif
  // The first two belong to a core, the third to all.
  constexpr int64_t kLeastOfMemory = int64_t{64} << 20;
  constexpr int64_t kMostOfMemory = int64_t{512} << 20;
  const struct {
    const char* name;
    int64_t bytes;
  } caches[] = {{"L1", sysconf(_SC_LEVEL1_DCACHE_SIZE) * threads},
                {"L2", sysconf(_SC_LEVEL2_CACHE_SIZE) * threads},
                {"L3", sysconf(_SC_LEVEL3_CACHE_SIZE)}};
  int64_t inner = 0;
  for (const auto& cache : caches) {
    if (cache.bytes <= 2 * inner) continue;  // not told, or of no use
    CpuPeaks::Level level = {.name = cache.name, .bytes = cache.bytes};
    const int64_t all = std::min(std::max(cache.bytes / 2, 2 * inner), kMostOfMemory);
    MeasureLevel(threads, all / threads / 4, loops, &level);
    peaks.levels.push_back(std::move(level));
    inner = cache.bytes;
  }
  CpuPeaks::Level memory = {.name = "memory"};
  MeasureLevel(threads, std::clamp(4 * inner, kLeastOfMemory, kMostOfMemory) / threads / 4, loops,
               &memory);
  peaks.levels.push_back(std::move(memory));
  return peaks;
}

}  // namespace tessera
