// SPDX-License-Identifier: Apache-2.0
// Failures that every rank knows of.
//
//   TESSERA_RETURN_IF_ERROR(Agree(mesh, OpenMyFiles()));     // all ranks continue, or none
//
// A rank that fails alone leaves the others waiting in a collective; the program then has to end
// the job. After `Agree` all ranks return the same failure, one of them may report it, and all end.
#ifndef TESSERA_TRAIN_RANKS_AGREEMENT_H_
#define TESSERA_TRAIN_RANKS_AGREEMENT_H_

#include "base/status.h"
#include "dist/mesh/mesh.h"

namespace tessera::train {

// OK when every rank is OK; else on all ranks the failure of the lowest one that has one, with its
// rank before the text where ranks differ. Collective over the mesh's world.
Status Agree(const dist::Mesh& mesh, const Status& mine);
// Whether a failure came from `Agree` among several ranks.
bool IsAgreed(const Status& status);
// A failure in other words, agreed on as it was before.
Status AgreedLike(const Status& failure, Status said);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RANKS_AGREEMENT_H_
