// SPDX-License-Identifier: Apache-2.0
#ifndef TESSERA_OPTIM_LION_LION_KERNEL_H_
#define TESSERA_OPTIM_LION_LION_KERNEL_H_

#include "optim/lion/lion_update.h"
#include "optim/update_kernel.h"

namespace tessera::optim {

inline KernelTable<UpdateArgs<LionUpdate>> lion_update{"lion"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_LION_LION_KERNEL_H_
