// SPDX-License-Identifier: Apache-2.0
#include "nn/convolution.h"

#include <cmath>

#include "nn/weight.h"

namespace tessera::nn {
namespace {

Placement WeightOf(const Shape& shape, int64_t groups) {
  TESSERA_CHECK(groups >= 1 && shape[1] % groups == 0 && shape[0] % groups == 0, "convolution",
                shape[1], " channels to ", shape[0], " in ", groups, " groups");
  Shape weight = shape;
  weight[1] /= groups;
  return Placement::Whole(weight);
}

Init InitOf(const std::optional<Init>& given, const Placement& weight) {
  const Shape shape = weight.local_shape();
  double fan_in = 1;
  for (int d = 1; d < shape.ndim(); ++d) fan_in *= static_cast<double>(shape[d]);
  return given.value_or(Init::Normal(1.0 / std::sqrt(3.0 * fan_in)));
}

// Convolutions take the tensor itself.
const Tensor& Dense(const Parameter& weight) {
  TESSERA_CHECK(IsDense(weight), "convolution", "'", weight.name, "' must be dense");
  return weight.tensor;
}

Tensor OrUndefined(const Parameter* p) { return p == nullptr ? Tensor() : p->tensor; }

Placement WeightOf(const Conv2dConfig& c) {
  return WeightOf({c.out_channels, c.in_channels, c.kernel.h, c.kernel.w}, c.groups);
}
// Of a transposed one the first two dims change places.
Placement WeightOf(const ConvTranspose2dConfig& c) {
  return WeightOf({c.in_channels, c.out_channels, c.kernel.h, c.kernel.w}, c.groups);
}
Placement WeightOf(const Conv1dConfig& c) {
  return WeightOf({c.out_channels, c.in_channels, c.kernel}, c.groups);
}

}  // namespace

Conv2d::Conv2d(const Conv2dConfig& c, const Scope& scope)
    : Module(scope),
      options_{c.stride, c.padding, c.dilation, c.groups},
      weight_(AddParameter("weight", WeightOf(c), InitOf(c.weight_init, WeightOf(c)))) {
  if (c.bias) bias_ = &AddParameter("bias", Placement::Whole({c.out_channels}), Init::Zeros());
}

Tensor Conv2d::Forward(const Tensor& x_NCHW) const {
  return Call(x_NCHW, [&] {
    return tessera::Conv2d(x_NCHW, Dense(weight_), OrUndefined(bias_), options_);
  });
}

ConvTranspose2d::ConvTranspose2d(const ConvTranspose2dConfig& c, const Scope& scope)
    : Module(scope),
      options_{c.stride, c.padding, c.output_padding, c.dilation, c.groups},
      weight_(AddParameter("weight", WeightOf(c), InitOf(c.weight_init, WeightOf(c)))) {
  if (c.bias) bias_ = &AddParameter("bias", Placement::Whole({c.out_channels}), Init::Zeros());
}

Tensor ConvTranspose2d::Forward(const Tensor& x_NCHW) const {
  return Call(x_NCHW, [&] {
    return tessera::ConvTranspose2d(x_NCHW, Dense(weight_), OrUndefined(bias_), options_);
  });
}

Conv1d::Conv1d(const Conv1dConfig& c, const Scope& scope)
    : Module(scope),
      options_{c.stride, c.padding, c.dilation, c.groups},
      weight_(AddParameter("weight", WeightOf(c), InitOf(c.weight_init, WeightOf(c)))) {
  if (c.bias) bias_ = &AddParameter("bias", Placement::Whole({c.out_channels}), Init::Zeros());
}

Tensor Conv1d::Forward(const Tensor& x_NCT) const {
  return Call(x_NCT,
              [&] { return tessera::Conv1d(x_NCT, Dense(weight_), OrUndefined(bias_), options_); });
}

}  // namespace tessera::nn
