// SPDX-License-Identifier: Apache-2.0
#ifndef TESSERA_OPTIM_SGD_SGD_KERNEL_H_
#define TESSERA_OPTIM_SGD_SGD_KERNEL_H_

#include "optim/sgd/sgd_update.h"
#include "optim/update_kernel.h"

namespace tessera::optim {

inline KernelTable<UpdateArgs<SgdUpdate>> sgd_update{"sgd"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_SGD_SGD_KERNEL_H_
