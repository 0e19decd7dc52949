// SPDX-License-Identifier: Apache-2.0
#include "optim/adam/adam_chunks.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

template <typename P, typename G>
void AdamOf(const AdamChunk& c) {
  const Weights<P> weights{static_cast<P*>(c.base.param), c.base.master};
  const G* grad = static_cast<const G*>(c.base.grad);
  const VecF grad_scale = Set(c.base.grad_scale);
  const VecF l2 = Set(c.l2);
  const VecF decay = Set(c.decay);
  const VecF beta1 = Set(c.beta1);
  const VecF one_minus_beta1 = Set(c.one_minus_beta1);
  const VecF beta2 = Set(c.beta2);
  const VecF one_minus_beta2 = Set(c.one_minus_beta2);
  const VecF inverse_sqrt_bias2 = Set(c.inverse_sqrt_bias2);
  const VecF eps = Set(c.eps);
  const VecF step_size = Set(c.step_size);
  ForEachVector(
      c.base.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        VecF w = Weights<P>::Read(weights, i, lanes);
        const VecF g = Fma(l2, w, Get(grad + i, lanes) * grad_scale);
        const VecF m = Fma(beta1, Get(c.exp_avg + i, lanes), one_minus_beta1 * g);
        const VecF v = Fma(beta2, Get(c.exp_avg_sq + i, lanes), one_minus_beta2 * g * g);
        Put(c.exp_avg + i, m, lanes);
        Put(c.exp_avg_sq + i, v, lanes);
        w = NegFma(decay, w, w);
        w = NegFma(step_size, m / Fma(Sqrt(v), inverse_sqrt_bias2, eps), w);
        Weights<P>::Write(weights, w, i, lanes);
      });
}

}  // namespace

void Adam(const AdamChunk& chunk) {
  Dispatch(chunk.base, [&](auto p, auto g) { AdamOf<decltype(p), decltype(g)>(chunk); });
}

}  // namespace tessera::optim::TESSERA_ISA
