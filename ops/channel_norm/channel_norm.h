// SPDX-License-Identifier: Apache-2.0
// Normalisation of pictures' channels: x [N, C, ...], channels in dim 1.
//
//   BatchNormed b = BatchNorm(x_NCHW, weight_C, bias_C, 1e-5);     // by the batch's own statistics
//   Tensor y = NormaliseChannels(x_NCHW, mean_C, variance_C, weight_C, bias_C, 1e-5);
//   Tensor z = GroupNorm(x_NCHW, /*groups=*/32, weight_C, bias_C, 1e-5);
//
// BatchNorm: (x - mean) / sqrt(var + eps) * weight + bias with mean and biased variance of each
// channel over the whole batch (Ioffe and Szegedy 2015). GroupNorm: those of each group of
// channels of each picture by itself (Wu and He 2018); one group per channel is InstanceNorm.
// NormaliseChannels: those that are given, which are constants.
//
// Floating dtypes, x, weight and bias alike; statistics are float32 (float64 for float64), and
// float32 statistics are taken for half-precision x too. weight [C] and bias [C] may be undefined.
// Gradients flow to x, weight and bias. Sums run picture by picture and are added in their order,
// independently of threads. At least one element per channel (or group); others throw Error.
#ifndef TESSERA_OPS_CHANNEL_NORM_CHANNEL_NORM_H_
#define TESSERA_OPS_CHANNEL_NORM_CHANNEL_NORM_H_

#include <cstdint>

#include "core/tensor.h"

namespace tessera {

struct BatchNormed {
  Tensor y;
  // Of the batch, [C] in AccumulateDType, off the tape; the variance is the biased one.
  Tensor mean;
  Tensor variance;
};
BatchNormed BatchNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

// `mean` and `variance` [C] of any floating dtype.
Tensor NormaliseChannels(const Tensor& x, const Tensor& mean, const Tensor& variance,
                         const Tensor& weight, const Tensor& bias, double eps);

// `groups` divides C.
Tensor GroupNorm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                 double eps);

}  // namespace tessera

#endif  // TESSERA_OPS_CHANNEL_NORM_CHANNEL_NORM_H_
