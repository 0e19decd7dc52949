// SPDX-License-Identifier: Apache-2.0
#include "nn/mlp.h"

#include "nn/weight.h"
#include "ops/elementwise/elementwise.h"
#include "ops/swiglu/swiglu.h"

namespace tessera::nn {
namespace {

LinearConfig UpConfig(const MlpConfig& config) {
  return {.in_features = config.hidden_size,
          .out_features = config.inner_size,
          .bias = config.bias,
          .layout = config.layout,
          .weight_init = config.weight_init};
}

Share InnerShare(const MlpConfig& config, const Group& group) {
  return group == nullptr ? Share{0, config.inner_size}
                          : EvenShare(config.inner_size, group->size(), group->rank());
}

}  // namespace

Mlp::Mlp(const MlpConfig& config, const Scope& scope)
    : Module(scope),
      activation_(config.activation),
      inner_size_(config.inner_size),
      inner_(InnerShare(config, build().tensor_parallel)),
      gate_(config.gate_name.empty() ? nullptr
                                     : std::make_unique<ColumnParallelLinear>(
                                           UpConfig(config), Child(config.gate_name))),
      up_(UpConfig(config), Child(config.up_name)),
      down_({.in_features = config.inner_size,
             .out_features = config.hidden_size,
             .bias = config.bias,
             .layout = config.layout,
             .weight_init = config.output_init},
            Child(config.down_name)),
      inner_dropout_(config.inner_dropout, Child("inner_dropout")),
      dropout_(config.dropout, Child("dropout")) {
  TESSERA_CHECK(activation_ != nullptr, "mlp", "no activation given");
}

Tensor Mlp::Forward(const Tensor& h, const ForwardContext& context) const {
  return Call(h, [&] {
    const bool drops_inner = context.training && inner_dropout_.p() > 0;
    const bool dense = IsDense(up_.weight()) && IsDense(down_.weight());
    if (gate_ == nullptr && activation_ == GeluTanh && !drops_inner && dense) {
      return dropout_.Forward(down_.ForwardGelu(up_.ForwardGelu(h, context)), context);
    }
    Tensor inner;
    if (gate_ == nullptr) {
      inner = activation_(up_.Forward(h, context));
    } else {
      const Tensor whole = up_.Gather(h, context);
      const Tensor gate = gate_->ForwardGathered(whole, context);
      const Tensor up = up_.ForwardGathered(whole, context);
      // Forms of weights may give other dtypes.
      const bool fused = activation_ == Silu && gate.dtype() == up.dtype();
      inner = fused ? SwiGlu(gate, up) : Mul(activation_(gate), up);
    }
    inner = inner_dropout_.ForwardFeatures(inner, inner_.begin, inner_size_, context);
    return dropout_.Forward(down_.Forward(inner, context), context);
  });
}

}  // namespace tessera::nn
