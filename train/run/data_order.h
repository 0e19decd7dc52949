// SPDX-License-Identifier: Apache-2.0
// The order in which a run draws its data, as its configuration says.
//
//   const data::Sampler sampler(DataOrder(config, train.get(), mesh));
#ifndef TESSERA_TRAIN_RUN_DATA_ORDER_H_
#define TESSERA_TRAIN_RUN_DATA_ORDER_H_

#include "data/dataset/dataset.h"
#include "data/dataset/sampler.h"
#include "dist/mesh/mesh.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Of a dataset, perhaps of unknown size, for all data-parallel ranks alike; it must outlive what
// draws by it. nullptr: nothing is drawn. Throws Error where group_by_length is set and the samples
// have no lengths. `begin`: where the run continues; `length_group`: of the run that it continues,
// 0: as many samples as some steps have.
data::SamplerOptions DataOrder(const RunConfig& config, const data::Dataset* dataset,
                               const dist::Mesh& mesh, const data::DataPosition& begin = {},
                               int64_t length_group = 0);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_DATA_ORDER_H_
