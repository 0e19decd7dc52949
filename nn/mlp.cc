#include "nn/mlp.h"

namespace tessera::nn {

Mlp::Mlp(const MlpConfig& config, const Scope& scope)
    : Module(scope),
      activation_(config.activation),
      up_({.in_features = config.hidden_size,
           .out_features = config.inner_size,
           .layout = config.layout,
           .weight_init = config.weight_init},
          Child(config.up_name)),
      down_({.in_features = config.inner_size,
             .out_features = config.hidden_size,
             .layout = config.layout,
             .weight_init = config.output_init},
            Child(config.down_name)),
      dropout_(config.dropout, Child("dropout")) {
  TESSERA_CHECK(activation_ != nullptr, "mlp", "no activation given");
}

Tensor Mlp::Forward(const Tensor& h, const ForwardContext& context) {
  return Call(h, [&] {
    return dropout_.Forward(down_.Forward(activation_(up_.Forward(h, context))), context);
  });
}

}  // namespace tessera::nn
