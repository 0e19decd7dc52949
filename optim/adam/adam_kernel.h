// SPDX-License-Identifier: Apache-2.0
// What the kernels of Adam and AdamW are given.
#ifndef TESSERA_OPTIM_ADAM_ADAM_KERNEL_H_
#define TESSERA_OPTIM_ADAM_ADAM_KERNEL_H_

#include <vector>

#include "optim/update_kernel.h"

namespace tessera::optim {

struct AdamArgs {
  const std::vector<UpdateTensor>& tensors;
  UpdateScalars scalars;
  double beta1;
  double beta2;
  double eps;
  bool decoupled;  // AdamW's weight decay; otherwise it is added to the gradient
};

inline KernelTable<AdamArgs> adam_update{"adam"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_ADAM_ADAM_KERNEL_H_
