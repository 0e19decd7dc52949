// SPDX-License-Identifier: Apache-2.0
#include "examples/vision/unet.h"

#include <tessera/ops/elementwise/elementwise.h>
#include <tessera/ops/pooling/interpolate.h>
#include <tessera/ops/pooling/pooling.h>
#include <tessera/ops/view/view.h>

namespace tessera::examples {
namespace {

nn::Conv2dConfig Kernel3(int64_t in_channels, int64_t out_channels) {
  return {.in_channels = in_channels, .out_channels = out_channels, .kernel = 3, .padding = 1};
}

Tensor Half(const Tensor& x_BCHW) { return MaxPool2d(x_BCHW, {.kernel = 2}); }

// `x` at twice its size beside `skip`, channel by channel.
Tensor Joined(const Tensor& x, const Tensor& skip) {
  const Tensor large =
      Interpolate(x, {skip.size(2), skip.size(3)}, {.mode = Interpolation::kBilinear});
  return Cat({large, skip}, 1);
}

}  // namespace

ConvPair::ConvPair(int64_t in_channels, int64_t out_channels, const nn::Scope& scope)
    : Module(scope),
      conv1_(Kernel3(in_channels, out_channels), Child("conv1")),
      norm1_({.groups = 4, .channels = out_channels}, Child("norm1")),
      conv2_(Kernel3(out_channels, out_channels), Child("conv2")),
      norm2_({.groups = 4, .channels = out_channels}, Child("norm2")) {}

Tensor ConvPair::Forward(const Tensor& x_BCHW) const {
  return Call(x_BCHW, [&] {
    const Tensor inner = Silu(norm1_.Forward(conv1_.Forward(x_BCHW)));
    return Silu(norm2_.Forward(conv2_.Forward(inner)));
  });
}

UNet::UNet(const UNetConfig& c, const nn::Scope& scope)
    : Module(scope),
      down1_(c.channels, c.width, Child("down1")),
      down2_(c.width, 2 * c.width, Child("down2")),
      middle_(2 * c.width, 4 * c.width, Child("middle")),
      up2_(6 * c.width, 2 * c.width, Child("up2")),
      up1_(3 * c.width, c.width, Child("up1")),
      out_({.in_channels = c.width, .out_channels = c.channels}, Child("out")) {}

Tensor UNet::Forward(const Tensor& x_BCHW) const {
  TESSERA_CHECK(x_BCHW.ndim() == 4 && x_BCHW.size(2) % 4 == 0 && x_BCHW.size(3) % 4 == 0, "unet",
                "pictures of sizes that are multiples of 4 are needed, got ", x_BCHW);
  return Call(x_BCHW, [&] {
    const Tensor a = down1_.Forward(x_BCHW);
    const Tensor b = down2_.Forward(Half(a));
    const Tensor c = middle_.Forward(Half(b));
    return out_.Forward(up1_.Forward(Joined(up2_.Forward(Joined(c, b)), a)));
  });
}

}  // namespace tessera::examples
