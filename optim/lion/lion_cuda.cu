// SPDX-License-Identifier: Apache-2.0
#include "optim/lion/lion_kernel.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

TESSERA_REGISTER_KERNEL(lion_update, DeviceType::kCuda, update::UpdateCuda<LionUpdate>);

}  // namespace
}  // namespace tessera::optim
