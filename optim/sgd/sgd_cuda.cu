// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd/sgd_kernel.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

TESSERA_REGISTER_KERNEL(sgd_update, DeviceType::kCuda, update::UpdateCuda<SgdUpdate>);

}  // namespace
}  // namespace tessera::optim
