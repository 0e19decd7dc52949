// SPDX-License-Identifier: Apache-2.0
// Building a model of which no rank ever holds the whole (DeepSpeed's `zero.Init`, Colossal-AI's
// `ZeroInitContext`).
//
//   CutWhileBuilding(options, StoreGroupsOf(mesh), &build);
//   auto model = models::BuildModel(config, build);
//   ParameterStore store(*model, ..., options);       // takes the shards over
//
// A parameter is cut as soon as it has its first values: this rank keeps 1/N of it, and its storage
// gives its bytes back. Weights from files are written to one parameter at a time, which needs no
// other rank. Peak memory is this rank's shards and the largest parameter. Until a store takes
// over, a GatheredScope (dist/store/parameter_shard.h) brings elements.
#ifndef TESSERA_DIST_STORE_ZERO_INIT_H_
#define TESSERA_DIST_STORE_ZERO_INIT_H_

#include "dist/store/store_setup.h"
#include "dist/store/zero_options.h"
#include "nn/module.h"

namespace tessera::dist {

// Makes `build` cut parameters over the ranks that hold the same (in host memory, where they are to
// be off-loaded) if the policy does; else leaves it as it is.
void CutWhileBuilding(const ZeroOptions& options, const StoreGroups& ranks,
                      nn::BuildContext* build);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_STORE_ZERO_INIT_H_
