// SPDX-License-Identifier: Apache-2.0
#include "optim/adam/adam_update.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {

template void UpdateRun(const UpdateChunk& chunk, const AdamUpdate& rule,
                        const AdamUpdate::Step& step);

}  // namespace tessera::optim::TESSERA_ISA
