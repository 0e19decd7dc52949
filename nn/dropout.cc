// SPDX-License-Identifier: Apache-2.0
#include "nn/dropout.h"

#include "ops/dropout/dropout.h"

namespace tessera::nn {

Tensor Dropout::Forward(const Tensor& x, const ForwardContext& context) const {
  if (!context.training || p_ == 0) return x;
  return Call(x, [&] {
    DropoutOptions options{
        .p = p_, .key = NoiseKey(context.seed, path(), context.step, context.micro_batch)};
    const Group& group = build().tensor_parallel;
    if (build().sequence_parallel && group != nullptr && group->size() > 1) {
      options.global_shape = x.shape();
      options.global_shape[1] = context.sequence_length;
      options.begin = x.shape();
      for (int d = 0; d < x.ndim(); ++d) options.begin[d] = 0;
      options.begin[1] = EvenShare(context.sequence_length, group->size(), group->rank()).begin;
    }
    return tessera::Dropout(x, options);
  });
}

Tensor Dropout::ForwardWhole(const Tensor& x, const ForwardContext& context) const {
  if (!context.training || p_ == 0) return x;
  return Call(x, [&] {
    return tessera::Dropout(
        x, {.p = p_, .key = NoiseKey(context.seed, path(), context.step, context.micro_batch)});
  });
}

Tensor Dropout::ForwardFeatures(const Tensor& x, int64_t begin, int64_t features,
                                const ForwardContext& context) const {
  if (!context.training || p_ == 0) return x;
  return Call(x, [&] {
    DropoutOptions options{.p = p_,
                           .key = NoiseKey(context.seed, path(), context.step, context.micro_batch),
                           .global_shape = x.shape(),
                           .begin = x.shape()};
    const int last = x.ndim() - 1;
    for (int d = 0; d < last; ++d) options.begin[d] = 0;
    options.begin[last] = begin;
    options.global_shape[last] = features;
    return tessera::Dropout(x, options);
  });
}

}  // namespace tessera::nn
