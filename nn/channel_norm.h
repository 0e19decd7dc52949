// SPDX-License-Identifier: Apache-2.0
// Normalisation of pictures' (and sequences') channels, dim 1 of [N, C, ...].
//
//   BatchNorm bn1({.channels = 64}, Child("bn1"));       // bn1.weight, .bias, .running_mean, ...
//   Tensor y = bn1.Forward(x_NCHW, context);
//   GroupNorm norm({.groups = 32, .channels = 320}, Child("norm"));
//
// BatchNorm (PyTorch's BatchNorm1d, 2d and 3d): a pass of training normalises by the statistics of
// its own batch, a micro-batch of this rank, and leaves them for the running ones
// (nn/running_statistics.h); one of evaluation normalises by `running_mean` and `running_var`,
// which are parameters that do not train, so that they lie in checkpoints. They have the dtype of
// the build: in half precision small changes are rounded away, so train with float32 parameters
// under autocast. The running variance takes the unbiased one, as PyTorch has it. Every rank holds
// the whole weight and bias.
#ifndef TESSERA_NN_CHANNEL_NORM_H_
#define TESSERA_NN_CHANNEL_NORM_H_

#include "nn/module.h"
#include "ops/channel_norm/channel_norm.h"

namespace tessera::nn {

struct BatchNormConfig {
  int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;  // the share of a step's statistics in the running ones
};

class BatchNorm : public Module {
 public:
  BatchNorm(const BatchNormConfig& config, const Scope& scope);
  std::string_view kind() const override { return "BatchNorm"; }
  // Throws Error for a pass of training without a RunningStatistics::Scope, or over one element per
  // channel.
  Tensor Forward(const Tensor& x, const ForwardContext& context) const;

 private:
  Tensor Train(const Tensor& x) const;

  const BatchNormConfig config_;
  Parameter& weight_;
  Parameter& bias_;
  Parameter& running_mean_;
  Parameter& running_var_;
};

// Of a GroupNorm.
struct GroupNormConfig {
  int64_t groups = 1;
  int64_t channels = 0;
  double eps = 1e-5;
};

class GroupNorm : public Module {
 public:
  GroupNorm(const GroupNormConfig& config, const Scope& scope);
  std::string_view kind() const override { return "GroupNorm"; }
  Tensor Forward(const Tensor& x) const;

 private:
  const GroupNormConfig config_;
  Parameter& weight_;
  Parameter& bias_;
};

}  // namespace tessera::nn

#endif  // TESSERA_NN_CHANNEL_NORM_H_
