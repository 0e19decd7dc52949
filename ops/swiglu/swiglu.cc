// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu/swiglu.h"

#include "autograd/autograd.h"
#include "ops/swiglu/swiglu_kernel.h"

namespace tessera {

Tensor SwiGlu(const Tensor& gate, const Tensor& up) {
  TESSERA_CHECK(gate.shape() == up.shape() && gate.dtype() == up.dtype() &&
                    gate.device() == up.device() && IsFloating(gate.dtype()),
                "swiglu", "gate ", gate, " and up ", up);
  const Tensor out = Empty(gate.shape(), gate.dtype(), gate.device());
  const Tensor gate_c = gate.Detach().ContiguousCopy();
  const Tensor up_c = up.Detach().ContiguousCopy();
  if (out.numel() > 0) {
    swiglu_forward.Launch(gate.device(), {gate.dtype(), gate.numel(), gate_c.raw_data(),
                                          up_c.raw_data(), out.raw_data()});
  }
  if (AnyRequiresGrad({gate, up})) {
    Record("swiglu", {gate, up}, {out},
           [gate = SavedTensor(gate_c), up = SavedTensor(up_c)](GradContext& ctx) {
             const Tensor g = gate.Unpack();
             const Tensor u = up.Unpack();
             const Tensor grad = ctx.grad().ContiguousCopy();
             const Tensor d_gate = Empty(g.shape(), g.dtype(), g.device());
             const Tensor d_up = Empty(g.shape(), g.dtype(), g.device());
             if (g.numel() > 0) {
               swiglu_backward.Launch(g.device(), {.dtype = g.dtype(),
                                                   .n = g.numel(),
                                                   .grad = grad.raw_data(),
                                                   .gate = g.raw_data(),
                                                   .up = u.raw_data(),
                                                   .d_gate = d_gate.raw_data(),
                                                   .d_up = d_up.raw_data()});
             }
             if (ctx.needs(0)) ctx.set(0, d_gate);
             if (ctx.needs(1)) ctx.set(1, d_up);
           });
  }
  return out;
}

}  // namespace tessera
