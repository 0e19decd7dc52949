// SPDX-License-Identifier: Apache-2.0
#include "optim/update_cpu.h"

namespace tessera::optim {
namespace {

void AdvanceCpu(const AdvanceArgs& args) {
  if (!Skipped(args.scalars)) ++*args.scalars.step;
}

TESSERA_REGISTER_KERNEL(advance_step, DeviceType::kCpu, AdvanceCpu);

}  // namespace
}  // namespace tessera::optim
