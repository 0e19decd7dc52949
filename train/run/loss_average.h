// SPDX-License-Identifier: Apache-2.0
// What the loss of a run's steps is the mean of.
//
//   if (AveragesMicroBatches(config, model)) divisors.push_back(targets_of_this_micro_batch);
#ifndef TESSERA_TRAIN_RUN_LOSS_AVERAGE_H_
#define TESSERA_TRAIN_RUN_LOSS_AVERAGE_H_

#include "models/model.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Whether it is the mean of the means of micro-batches, rather than of all targets: as
// `loss_average` says, for this family of models.
bool AveragesMicroBatches(const RunConfig& config, const models::Model& model);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_LOSS_AVERAGE_H_
