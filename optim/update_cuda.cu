// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/launch.h"
#include "optim/update_cuda.cuh"

namespace tessera::optim {
namespace {

using cuda::Launch;
using update::Skipped;

__global__ void AdvanceKernel(UpdateScalars scalars) {
  if (!Skipped(scalars)) ++*scalars.step;
}

void AdvanceCuda(const AdvanceArgs& args) {
  Launch("optimizer step count", {1, 1}, AdvanceKernel, args.scalars);
}

TESSERA_REGISTER_KERNEL(advance_step, DeviceType::kCuda, AdvanceCuda);

}  // namespace
}  // namespace tessera::optim
