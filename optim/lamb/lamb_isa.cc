// SPDX-License-Identifier: Apache-2.0
#include "optim/lamb/lamb_chunks.h"
#include "optim/square_sum_simd.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

struct Factors {
  VecF inverse_bias1;
  VecF inverse_sqrt_bias2;
  VecF eps;
  VecF weight_decay;
};

TESSERA_SIMD Factors FactorsOf(const LambChunk& c) {
  return {Set(c.inverse_bias1), Set(c.inverse_sqrt_bias2), Set(c.eps), Set(c.weight_decay)};
}

// The same operations in both passes.
TESSERA_SIMD VecF UpdateOf(const Factors& f, VecF m, VecF v, VecF w) {
  return Fma(f.weight_decay, w, m * f.inverse_bias1 / Fma(Sqrt(v), f.inverse_sqrt_bias2, f.eps));
}

template <typename P, typename G>
void Moments(const LambChunk& c, double* sums) {
  const Weights<P> weights{static_cast<P*>(c.base.param), c.base.master};
  const G* grad = static_cast<const G*>(c.base.grad);
  const Factors factors = FactorsOf(c);
  const VecF grad_scale = Set(c.base.grad_scale);
  const VecF beta1 = Set(c.beta1);
  const VecF one_minus_beta1 = Set(c.one_minus_beta1);
  const VecF beta2 = Set(c.beta2);
  const VecF one_minus_beta2 = Set(c.one_minus_beta2);
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
      const VecF g = Get(grad + at, lanes) * grad_scale;
      const VecF m = Fma(beta1, Get(c.exp_avg + at, lanes), one_minus_beta1 * g);
      const VecF v = Fma(beta2, Get(c.exp_avg_sq + at, lanes), one_minus_beta2 * g * g);
      Put(c.exp_avg + at, m, lanes);
      Put(c.exp_avg_sq + at, v, lanes);
      Put(w_block + k, w, lanes);
      Put(u_block + k, UpdateOf(factors, m, v, w), lanes);
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
  const Factors factors = FactorsOf(c);
  const VecF step_size = Set(c.step_size);
  ForEachVector(
      c.base.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF w = Weights<P>::Read(weights, i, lanes);
        const VecF u =
            UpdateOf(factors, Get(c.exp_avg + i, lanes), Get(c.exp_avg_sq + i, lanes), w);
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
