// SPDX-License-Identifier: Apache-2.0
#include "optim/lion/lion_update.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {

template void UpdateRun(const UpdateChunk& chunk, const LionUpdate& rule,
                        const LionUpdate::Step& step);

}  // namespace tessera::optim::TESSERA_ISA
