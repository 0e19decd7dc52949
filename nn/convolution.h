// SPDX-License-Identifier: Apache-2.0
// Convolutions with their weights, as PyTorch names them: `weight` [out, in / groups, kernel...]
// and `bias` [out].
//
//   Conv2d conv1({.in_channels = 3, .out_channels = 64, .kernel = 7, .stride = 2, .padding = 3,
//                 .bias = false}, Child("conv1"));
//   Tensor y_NOHW = conv1.Forward(x_NCHW);
//
// Weights begin normal with PyTorch's default deviation, 1 / sqrt(3 fan_in), where `weight_init` is
// not given. Every rank holds the whole weight.
#ifndef TESSERA_NN_CONVOLUTION_H_
#define TESSERA_NN_CONVOLUTION_H_

#include <optional>

#include "nn/module.h"
#include "ops/convolution/convolution.h"

namespace tessera::nn {

struct Conv2dConfig {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  Extent2d kernel = 1;
  Extent2d stride = 1;
  Extent2d padding = 0;
  Extent2d dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::optional<Init> weight_init = std::nullopt;
};

class Conv2d : public Module {
 public:
  Conv2d(const Conv2dConfig& config, const Scope& scope);
  std::string_view kind() const override { return "Conv2d"; }
  Tensor Forward(const Tensor& x_NCHW) const;

 private:
  const Conv2dOptions options_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

// Of a ConvTranspose2d.
struct ConvTranspose2dConfig {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  Extent2d kernel = 1;
  Extent2d stride = 1;
  Extent2d padding = 0;
  Extent2d output_padding = 0;
  Extent2d dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::optional<Init> weight_init = std::nullopt;
};

// A transposed convolution, which makes pictures larger; `weight` [in, out / groups, kernel...].
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(const ConvTranspose2dConfig& config, const Scope& scope);
  std::string_view kind() const override { return "ConvTranspose2d"; }
  Tensor Forward(const Tensor& x_NCHW) const;

 private:
  const ConvTranspose2dOptions options_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

// Of a Conv1d.
struct Conv1dConfig {
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::optional<Init> weight_init = std::nullopt;
};

// A convolution along one dim, x [N, C, T].
class Conv1d : public Module {
 public:
  Conv1d(const Conv1dConfig& config, const Scope& scope);
  std::string_view kind() const override { return "Conv1d"; }
  Tensor Forward(const Tensor& x_NCT) const;

 private:
  const Conv1dOptions options_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_CONVOLUTION_H_
