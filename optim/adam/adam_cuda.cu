// SPDX-License-Identifier: Apache-2.0
#include "optim/adam/adam_kernel.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

TESSERA_REGISTER_KERNEL(adam_update, DeviceType::kCuda, update::UpdateCuda<AdamUpdate>);

}  // namespace
}  // namespace tessera::optim
