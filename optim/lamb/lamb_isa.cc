// SPDX-License-Identifier: Apache-2.0
#include "optim/lamb/lamb_chunks.h"
#include "optim/square_sum_simd.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

TESSERA_SIMD LambUpdate::Factors<VecF> FactorsOf(const LambChunk& c) {
  return c.rule.FactorsOf<VecF>(c.step, c.base.weight_decay);
}

template <typename P, typename G>
void Moments(const LambChunk& c, double* sums) {
  const Weights<P> weights{static_cast<P*>(c.base.param), c.base.master};
  const G* grad = static_cast<const G*>(c.base.grad);
  const auto factors = FactorsOf(c);
  const VecF grad_scale = Set(c.base.grad_scale);
  float* const exp_avg = c.base.states[0];
  float* const exp_avg_sq = c.base.states[1];
  double weight_sums[kPartials] = {};
  double update_sums[kPartials] = {};
  // `count` elements from i on, at most kPartials.
  const auto block = [&](int64_t i, int64_t count) __attribute__((always_inline)) {
    float w_block[kPartials] = {};
    float u_block[kPartials] = {};
    for (int64_t k = 0; k < count; k += kLanes) {
      const int64_t lanes = count - k < kLanes ? count - k : kLanes;
      const int64_t at = i + k;
      const VecF w = Weights<P>::Read(weights, at, lanes);
      VecF m = Get(exp_avg + at, lanes);
      VecF v = Get(exp_avg_sq + at, lanes);
      DecayMoments(factors.moments, Get(grad + at, lanes) * grad_scale, &m, &v);
      Put(exp_avg + at, m, lanes);
      Put(exp_avg_sq + at, v, lanes);
      Put(w_block + k, w, lanes);
      Put(u_block + k, LambUpdate::Direction(factors, w, m, v), lanes);
    }
    AddSquares(weight_sums, w_block);
    AddSquares(update_sums, u_block);
  };
  int64_t i = 0;
  for (; i + kPartials <= c.base.n; i += kPartials) block(i, kPartials);
  if (i < c.base.n) block(i, c.base.n - i);
  sums[0] = JoinPartials(weight_sums);
  sums[1] = JoinPartials(update_sums);
}

template <typename P>
void Apply(const LambChunk& c) {
  const Weights<P> weights{static_cast<P*>(c.base.param), c.base.master};
  const auto factors = FactorsOf(c);
  const VecF step_size = Set(static_cast<float>(c.base.lr));
  const float* const exp_avg = c.base.states[0];
  const float* const exp_avg_sq = c.base.states[1];
  ForEachVector(
      c.base.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF w = Weights<P>::Read(weights, i, lanes);
        const VecF u =
            LambUpdate::Direction(factors, w, Get(exp_avg + i, lanes), Get(exp_avg_sq + i, lanes));
        Weights<P>::Write(weights, NegFma(step_size, u, w), i, lanes);
      });
}

}  // namespace

void LambMoments(const LambChunk& chunk, double* sums) {
  Dispatch(chunk.base, [&](auto p, auto g) { Moments<decltype(p), decltype(g)>(chunk, sums); });
}

void LambApply(const LambChunk& chunk) {
  DispatchWeights(chunk.base, [&](auto p) { Apply<decltype(p)>(chunk); });
}

}  // namespace tessera::optim::TESSERA_ISA
