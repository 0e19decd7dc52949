// SPDX-License-Identifier: Apache-2.0
#include "train/engine/phase_clock.h"

#include "nlohmann/json.hpp"

namespace tessera::train {

void PhaseClock::Report(int64_t steps, nlohmann::ordered_json* row) {
  for (size_t i = 0; i < seconds_.size(); ++i) {
    (*row)[kPhaseKeys[i]] = 1e3 * seconds_[i] / static_cast<double>(steps > 0 ? steps : 1);
  }
}

}  // namespace tessera::train
