// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "optim/grad_scaler_kernel.h"

namespace tessera::optim {
namespace {

void UpdateScaleCpu(const UpdateScaleArgs& args) {
  const bool overflow = *args.found_inf != 0;
  *args.found_inf = 0;
  if (!args.dynamic) return;
  const double scale = *args.scale;
  if (overflow) {
    *args.good_steps = 0;
    *args.tolerance = std::max<int64_t>(*args.tolerance - 1, 0);
    if (*args.tolerance == 0) {
      *args.scale = static_cast<float>(std::max(scale * args.backoff_factor, args.min_scale));
    }
  } else if (++*args.good_steps >= args.growth_interval) {
    *args.good_steps = 0;
    *args.tolerance = args.hysteresis;
    *args.scale = static_cast<float>(std::min(scale * args.growth_factor, args.max_scale));
  }
}

TESSERA_REGISTER_KERNEL(update_scale, DeviceType::kCpu, UpdateScaleCpu);

}  // namespace
}  // namespace tessera::optim
