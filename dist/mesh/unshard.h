// SPDX-License-Identifier: Apache-2.0
// The whole of a tensor whose parts lie on the ranks of a group.
//
//   Tensor whole = Unshard(parameter.tensor, parameter.placement, mesh.tp());
//   SaveModel(model, folder, tokenizer, {.gather = [&](nn::Parameter& p) { return Unshard(...);
//   }});
#ifndef TESSERA_DIST_MESH_UNSHARD_H_
#define TESSERA_DIST_MESH_UNSHARD_H_

#include "core/placement.h"
#include "core/tensor.h"
#include "dist/mesh/mesh.h"
#include "nn/module.h"

namespace tessera::dist {

// `local` is this rank's part by `placement`, of one dtype and global shape on all ranks. The
// result, on every rank, is off the tape; where a rank's part is the whole it is `local` itself.
// One part at a time travels. Throws Error where parts of the tensor are on no rank. Collective.
Tensor Unshard(const Tensor& local, const Placement& placement, const Group& group);
// Of a parameter of any kind, over tp and, an expert's, over ep. With one rank it is the tensor.
Tensor Unshard(const nn::Parameter& parameter, const Mesh& mesh);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_MESH_UNSHARD_H_
