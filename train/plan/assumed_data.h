// SPDX-License-Identifier: Apache-2.0
// Tokens that stand for data which are not there, for plans.
#ifndef TESSERA_TRAIN_PLAN_ASSUMED_DATA_H_
#define TESSERA_TRAIN_PLAN_ASSUMED_DATA_H_

#include <string>

#include "base/status.h"
#include "train/config/run_config.h"

namespace tessera::train {

// Whether a file of `config.data` or of its validation data is not there, or none is named.
bool LacksData(const RunConfig& config);

// Writes a token dataset of a little more than a step of `data_ranks` ranks takes into `folder`,
// and names it in place of the data.
Status AssumeData(int data_ranks, const std::string& folder, RunConfig* config);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PLAN_ASSUMED_DATA_H_
