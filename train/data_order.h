// The order in which a run draws its data, as its configuration says.
//
//   const data::Sampler sampler(DataOrder(config, train->size(), mesh));
#ifndef TESSERA_TRAIN_DATA_ORDER_H_
#define TESSERA_TRAIN_DATA_ORDER_H_

#include <cstdint>

#include "data/dataset/sampler.h"
#include "dist/mesh/mesh.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Of a dataset of so many samples (perhaps data::kUnknownSize), for all data-parallel ranks alike.
data::SamplerOptions DataOrder(const RunConfig& config, int64_t num_samples,
                               const dist::Mesh& mesh);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_DATA_ORDER_H_
