// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/cpu/every_isa.h"
#include "core/cpu_isa.h"
#include "optim/chunk_loop.h"
#include "optim/exact_sum.h"
#include "optim/grad_norm_chunks.h"
#include "optim/grad_norm_kernel.h"

namespace tessera::optim {
namespace {

constexpr int64_t kChunk = 16384;  // elements that a thread takes at a time

const GradChunks& Chunks() {
  constexpr IsaTable<const GradChunks> kChunks{TESSERA_FOR_EVERY_ISA(kGradChunks)};
  return *kChunks.Select();
}

GradType TypeOf(DType dtype) {
  return dtype == DType::kFloat32    ? GradType::kFloat32
         : dtype == DType::kBFloat16 ? GradType::kBFloat16
         : dtype == DType::kFloat16  ? GradType::kFloat16
                                     : GradType::kFloat64;
}

ChunkLoop LoopOver(const std::vector<GradArray>& grads, int64_t chunk) {
  ChunkLoop loop(chunk);
  for (const GradArray& grad : grads) loop.Add(grad.n);
  return loop;
}

void* At(const GradArray& grad, int64_t i) {
  return static_cast<char*>(grad.data) + i * static_cast<int64_t>(DTypeSize(grad.dtype));
}

// Of numbers that are not finite, or too large for sums of them.
template <typename Add>
void AddOneByOne(const GradArray& grad, int64_t begin, int64_t n, const Add& add) {
  DispatchFloat(grad.dtype, "gradient norm", [&](auto zero) {
    const auto* const x = static_cast<const decltype(zero)*>(grad.data) + begin;
    for (int64_t i = 0; i < n; ++i) {
      const auto value = static_cast<double>(x[i]);
      AddExactly(value * value, add);
    }
  });
}

void SquareSumsCpu(const SquareSumArgs& args) {
  const GradChunks& chunks = Chunks();
  std::fill_n(args.words, kSumWords, 0);
  LoopOver(args.grads, kChunk).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const GradArray& grad = args.grads[index];
    int64_t words[kSumWords] = {};
    const auto add = [&](int word, int64_t digit) { words[word] += digit; };
    for (int64_t i = 0; i < n; i += kExactBlock) {
      const int64_t block = std::min(kExactBlock, n - i);
      double terms[kMostTerms];
      const int count = chunks.square_terms(TypeOf(grad.dtype), At(grad, begin + i), block, terms);
      if (count < 0) AddOneByOne(grad, begin + i, block, add);
      for (int t = 0; t < count; ++t) AddExactly(terms[t], add);
    }
    for (int i = 0; i < kSumWords; ++i) {
      if (words[i] == 0) continue;
      std::atomic_ref(args.words[i]).fetch_add(words[i], std::memory_order_relaxed);
    }
  });
}

void RoundSumCpu(const RoundSumArgs& args) { *args.sum = RoundedSum(args.words); }

void ClipFactorCpu(const ClipFactorArgs& args) {
  const double scale = args.loss_scale != nullptr ? static_cast<double>(*args.loss_scale) : 1.0;
  const double norm = std::sqrt(*args.squared_norm) / scale;
  *args.norm = static_cast<float>(norm);
  // A norm that is no number clips nothing.
  *args.factor = static_cast<float>(std::min(1.0, args.max_norm / (norm + 1e-6)));
  if (args.found_inf != nullptr && !std::isfinite(norm)) *args.found_inf = 1.0f;
}

void ScaleGradsCpu(const ScaleGradsArgs& args) {
  double factor = *args.clip_factor;
  if (args.loss_scale != nullptr) factor /= static_cast<double>(*args.loss_scale);
  if (factor == 1.0) return;
  const GradChunks& chunks = Chunks();
  LoopOver(args.grads, kChunk).Run([&](size_t index, int64_t begin, int64_t n, int64_t) {
    const GradArray& grad = args.grads[index];
    chunks.scale(TypeOf(grad.dtype), At(grad, begin), n, factor);
  });
}

TESSERA_REGISTER_KERNEL(square_sums, DeviceType::kCpu, SquareSumsCpu);
TESSERA_REGISTER_KERNEL(round_sum, DeviceType::kCpu, RoundSumCpu);
TESSERA_REGISTER_KERNEL(clip_factor, DeviceType::kCpu, ClipFactorCpu);
TESSERA_REGISTER_KERNEL(scale_grads, DeviceType::kCpu, ScaleGradsCpu);

}  // namespace
}  // namespace tessera::optim
