// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd/sgd_chunks.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

template <typename P, typename G>
void SgdOf(const SgdChunk& c) {
  const Weights<P> weights{static_cast<P*>(c.base.param), c.base.master};
  const G* grad = static_cast<const G*>(c.base.grad);
  const VecF grad_scale = Set(c.base.grad_scale);
  const VecF l2 = Set(c.l2);
  const VecF momentum = Set(c.momentum);
  const VecF lr = Set(c.lr);
  ForEachVector(
      c.base.n, [&](int64_t i, int64_t lanes) __attribute__((always_inline)) {
        const VecF w = Weights<P>::Read(weights, i, lanes);
        VecF g = Fma(l2, w, Get(grad + i, lanes) * grad_scale);
        if (c.buffer != nullptr) {
          const VecF b = Fma(momentum, Get(c.buffer + i, lanes), g);
          Put(c.buffer + i, b, lanes);
          g = c.nesterov ? Fma(momentum, b, g) : b;
        }
        Weights<P>::Write(weights, NegFma(lr, g, w), i, lanes);
      });
}

}  // namespace

void Sgd(const SgdChunk& chunk) {
  Dispatch(chunk.base, [&](auto p, auto g) { SgdOf<decltype(p), decltype(g)>(chunk); });
}

}  // namespace tessera::optim::TESSERA_ISA
