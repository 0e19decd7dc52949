// SPDX-License-Identifier: Apache-2.0
#ifndef TESSERA_OPTIM_ADAM_ADAM_KERNEL_H_
#define TESSERA_OPTIM_ADAM_ADAM_KERNEL_H_

#include "optim/adam/adam_update.h"
#include "optim/update_kernel.h"

namespace tessera::optim {

inline KernelTable<UpdateArgs<AdamUpdate>> adam_update{"adam"};

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_ADAM_ADAM_KERNEL_H_
