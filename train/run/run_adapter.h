// SPDX-License-Identifier: Apache-2.0
// The adapter that a run trains, from its configuration.
//
//   TESSERA_ASSIGN_OR_RETURN(const models::AdapterConfig adapter,
//                            AdapterOf(config, *model, data.replaces_head));
//   TESSERA_RETURN_IF_ERROR(TrainAdapter(config, adapter, *model));
#ifndef TESSERA_TRAIN_RUN_RUN_ADAPTER_H_
#define TESSERA_TRAIN_RUN_RUN_ADAPTER_H_

#include <string>

#include "base/status.h"
#include "models/hub/adapter.h"
#include "models/model.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Of a run with `adapter`: as its keys say it, or its folder. `new_head`: a head was made for the
// data, and belongs to it.
StatusOr<models::AdapterConfig> AdapterOf(const RunConfig& config, const models::Model& model,
                                          bool new_head);

// Lets a model without numbers say what a prefix leaves of its positions, before data are opened.
Status DescribePrefix(const RunConfig& config, models::Model& shape);

// Attaches it to this rank's part of the model, new or with the folder's values; nothing else
// trains from then on. Collective over the ranks that share the model's parameters.
Status TrainAdapter(const RunConfig& config, const models::AdapterConfig& adapter,
                    models::Model& model);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_RUN_ADAPTER_H_
