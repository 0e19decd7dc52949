#include "core/cpu/simd.h"
#include "optim/update_chunks.h"

namespace tessera::optim::TESSERA_ISA {
namespace {

using namespace tessera::TESSERA_ISA;  // NOLINT(google-build-using-namespace): the vectors

// `lanes` is a constant in the body of ForEachVector and less in its tail.
template <typename T>
TESSERA_SIMD VecF Get(const T* p, int64_t lanes) {
  return lanes == kLanes ? Load(p) : LoadN(p, lanes);
}
template <typename T>
TESSERA_SIMD void Put(T* p, VecF v, int64_t lanes) {
  if (lanes == kLanes) {
    Store(p, v);
  } else {
    StoreN(p, v, lanes);
  }
}

// The weights of a chunk as float32: P is float, or the half type that they are rounded to.
template <typename P>
struct Weights {
  P* param;
  float* master;
  TESSERA_SIMD VecF Read(const Weights& w, int64_t i, int64_t lanes) {
    return Get(w.master + i, lanes);
  }
  TESSERA_SIMD void Write(const Weights& w, VecF v, int64_t i, int64_t lanes) {
    Put(w.master + i, v, lanes);
    Put(w.param + i, v, lanes);
  }
};
template <>
struct Weights<float> {
  float* param;
  float* master;
  TESSERA_SIMD VecF Read(const Weights& w, int64_t i, int64_t lanes) {
    return Get(w.param + i, lanes);
  }
  TESSERA_SIMD void Write(const Weights& w, VecF v, int64_t i, int64_t lanes) {
    Put(w.param + i, v, lanes);
  }
};

template <typename P, typename G>
void Adam(const AdamChunk& c) {
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

template <typename P, typename G>
void Sgd(const SgdChunk& c) {
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

// Calls f(P{}, G{}) for the types of a chunk.
template <typename P, typename F>
TESSERA_SIMD void DispatchGrad(UpdateType grad_type, F f) {
  switch (grad_type) {
    case UpdateType::kFloat32:
      return f(P{}, float{});
    case UpdateType::kBFloat16:
      return f(P{}, Bf16{});
    case UpdateType::kFloat16:
      return f(P{}, F16{});
  }
}
template <typename F>
TESSERA_SIMD void Dispatch(const UpdateChunk& c, F f) {
  switch (c.type) {
    case UpdateType::kFloat32:
      return DispatchGrad<float>(c.grad_type, f);
    case UpdateType::kBFloat16:
      return DispatchGrad<Bf16>(c.grad_type, f);
    case UpdateType::kFloat16:
      return DispatchGrad<F16>(c.grad_type, f);
  }
}

void AdamAny(const AdamChunk& chunk) {
  Dispatch(chunk.base, [&](auto p, auto g) { Adam<decltype(p), decltype(g)>(chunk); });
}

void SgdAny(const SgdChunk& chunk) {
  Dispatch(chunk.base, [&](auto p, auto g) { Sgd<decltype(p), decltype(g)>(chunk); });
}

}  // namespace

extern const UpdateChunks kUpdateChunks;
const UpdateChunks kUpdateChunks = {AdamAny, SgdAny};

}  // namespace tessera::optim::TESSERA_ISA
