// SPDX-License-Identifier: Apache-2.0
#include "nn/dropout.h"

#include "nn/sequence_share.h"

namespace tessera::nn {
namespace {

RandomKey KeyOf(const Dropout& layer, const ForwardContext& context) {
  return NoiseKey(context.seed, layer.path(), context.step, context.micro_batch);
}

}  // namespace

Dropout::Dropout(double p, const Scope& scope) : Module(scope) { Dropout::set_dropout(p); }

void Dropout::set_dropout(double p) {
  TESSERA_CHECK(p >= 0 && p < 1, "dropout", "p = ", p, " is not in [0, 1)");
  p_ = p;
}

Tensor Dropout::Forward(const Tensor& x, const ForwardContext& context) const {
  if (!context.training || p_ == 0) return x;
  return Call(x, [&] {
    return DropShare(x, {.p = p_, .key = KeyOf(*this, context)}, HiddenTokens(build(), context));
  });
}

Tensor Dropout::ForwardWhole(const Tensor& x, const ForwardContext& context) const {
  if (!context.training || p_ == 0) return x;
  return Call(x, [&] { return tessera::Dropout(x, {.p = p_, .key = KeyOf(*this, context)}); });
}

Tensor Dropout::ForwardFeatures(const Tensor& x, int64_t begin, int64_t features,
                                const ForwardContext& context) const {
  if (!context.training || p_ == 0) return x;
  return Call(x, [&] {
    DropoutOptions options{
        .p = p_, .key = KeyOf(*this, context), .global_shape = x.shape(), .begin = x.shape()};
    const int last = x.ndim() - 1;
    for (int d = 0; d < last; ++d) options.begin[d] = 0;
    options.begin[last] = begin;
    options.global_shape[last] = features;
    return DropShare(x, options, GatheredTokens(build(), context));
  });
}

}  // namespace tessera::nn
