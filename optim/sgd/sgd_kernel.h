// SPDX-License-Identifier: Apache-2.0
// What the kernels of SGD are given.
#ifndef TESSERA_OPTIM_SGD_SGD_KERNEL_H_
#define TESSERA_OPTIM_SGD_SGD_KERNEL_H_

#include <vector>

#include "optim/update_kernel.h"

namespace tessera::optim {

struct SgdArgs {
  const std::vector<UpdateTensor>& tensors;
  UpdateScalars scalars;
  double momentum;
  bool nesterov;
};

inline KernelTable<SgdArgs> sgd_update{"sgd"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_SGD_SGD_KERNEL_H_
