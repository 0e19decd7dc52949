// SPDX-License-Identifier: Apache-2.0
// What the kernel of the loss scale is given.
#ifndef TESSERA_OPTIM_GRAD_SCALER_KERNEL_H_
#define TESSERA_OPTIM_GRAD_SCALER_KERNEL_H_

#include <cstdint>

#include "core/kernel_table.h"

namespace tessera::optim {

// The rule of optim/grad_scaler.h; afterwards *found_inf is 0.
struct UpdateScaleArgs {
  bool dynamic;
  double min_scale;
  double max_scale;
  double growth_factor;
  double backoff_factor;
  int64_t growth_interval;
  int64_t hysteresis;
  float* scale;
  float* found_inf;
  int64_t* good_steps;  // since the scale grew or a step overflowed
  int64_t* tolerance;   // overflows until the scale falls
};

inline KernelTable<UpdateScaleArgs> update_scale{"loss scale"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_GRAD_SCALER_KERNEL_H_
