// SPDX-License-Identifier: Apache-2.0
// A small U-Net (Ronneberger et al. 2015): a picture in, a picture of the same size out.
//
//   UNet net({.channels = 1, .width = 16}, nn::Scope::Root({.seed = 1}));
//   Tensor noise_BCHW = net.Forward(noisy_BCHW);           // H and W are multiples of 4
//
//   x -> a -------------------------------> cat -> out
//        half -> b ------------> cat -> up
//                half -> c -> up
//
// Each of a, b, ... is two convolutions with GroupNorm and SiLU; halves are 2x2 maxima, pictures
// are enlarged bilinearly.
#ifndef TESSERA_EXAMPLES_VISION_UNET_H_
#define TESSERA_EXAMPLES_VISION_UNET_H_

#include <tessera/nn/channel_norm.h>
#include <tessera/nn/convolution.h>

namespace tessera::examples {

// Two times 3x3 convolution, GroupNorm, SiLU.
class ConvPair : public nn::Module {
 public:
  ConvPair(int64_t in_channels, int64_t out_channels, const nn::Scope& scope);
  Tensor Forward(const Tensor& x_BCHW) const;

 private:
  nn::Conv2d conv1_;
  nn::GroupNorm norm1_;
  nn::Conv2d conv2_;
  nn::GroupNorm norm2_;
};

struct UNetConfig {
  int64_t channels = 1;  // of the pictures
  int64_t width = 16;    // channels at full size; a multiple of 4
};

class UNet : public nn::Module {
 public:
  UNet(const UNetConfig& config, const nn::Scope& scope);
  Tensor Forward(const Tensor& x_BCHW) const;

 private:
  ConvPair down1_;
  ConvPair down2_;
  ConvPair middle_;
  ConvPair up2_;
  ConvPair up1_;
  nn::Conv2d out_;
};

}  // namespace tessera::examples

#endif  // TESSERA_EXAMPLES_VISION_UNET_H_
