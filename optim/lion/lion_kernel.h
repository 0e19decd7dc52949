// SPDX-License-Identifier: Apache-2.0
// What the kernels of Lion are given.
#ifndef TESSERA_OPTIM_LION_LION_KERNEL_H_
#define TESSERA_OPTIM_LION_LION_KERNEL_H_

#include <vector>

#include "optim/update_kernel.h"

namespace tessera::optim {

struct LionArgs {
  const std::vector<UpdateTensor>& tensors;
  UpdateScalars scalars;
  double beta1;
  double beta2;
};

inline KernelTable<LionArgs> lion_update{"lion"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LION_LION_KERNEL_H_
