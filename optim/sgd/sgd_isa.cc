// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd/sgd_update.h"
#include "optim/update_simd.h"

namespace tessera::optim::TESSERA_ISA {

template void UpdateRun(const UpdateChunk& chunk, const SgdUpdate& rule,
                        const SgdUpdate::Step& step);

}  // namespace tessera::optim::TESSERA_ISA
