// SPDX-License-Identifier: Apache-2.0
#include "optim/lion/lion_chunks.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

// Zero and NaN stay what they are.
TESSERA_SIMD VecF Sign(VecF x) {
  return Select(Or(x < Zero(), Zero() < x), CopySign(Set(1.0f), x), x);
}

template <typename P, typename G>
void LionOf(const LionChunk& c) {
  const Weights<P> weights{static_cast<P*>(c.base.param), c.base.master};
  const G* grad = static_cast<const G*>(c.base.grad);
  const VecF grad_scale = Set(c.base.grad_scale);
  const VecF decay = Set(c.decay);
  const VecF beta1 = Set(c.beta1);
  const VecF one_minus_beta1 = Set(c.one_minus_beta1);
  const VecF beta2 = Set(c.beta2);
  const VecF one_minus_beta2 = Set(c.one_minus_beta2);
  const VecF lr = Set(c.lr);
  ForEachVector(
      c.base.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF g = Get(grad + i, lanes) * grad_scale;
        const VecF m = Get(c.exp_avg + i, lanes);
        VecF w = Weights<P>::Read(weights, i, lanes);
        w = NegFma(decay, w, w);
        w = NegFma(lr, Sign(Fma(beta1, m, one_minus_beta1 * g)), w);
        Put(c.exp_avg + i, Fma(beta2, m, one_minus_beta2 * g), lanes);
        Weights<P>::Write(weights, w, i, lanes);
      });
}

}  // namespace

void Lion(const LionChunk& chunk) {
  Dispatch(chunk.base, [&](auto p, auto g) { LionOf<decltype(p), decltype(g)>(chunk); });
}

}  // namespace tessera::optim::TESSERA_ISA
