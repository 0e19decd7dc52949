// SPDX-License-Identifier: Apache-2.0
#include "train/callbacks/trainer_callback.h"

#include "nlohmann/json.hpp"

namespace tessera::train {

nlohmann::json TrainerCallback::State() const { return nullptr; }

}  // namespace tessera::train
