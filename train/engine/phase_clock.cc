// SPDX-License-Identifier: Apache-2.0
#include "train/engine/phase_clock.h"

#include <chrono>

#include "base/error.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

double PhaseClock::Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

PhaseClock::Scope::~Scope() {
  try {
    if (clock_->waits()) SynchronizeDevice(*clock_->waits_for_);
  } catch (const Error&) {
    // The next use of the device says so.
  }
  clock_->seconds_[static_cast<size_t>(phase_)] += Now() - start_;
}

void PhaseClock::Report(int64_t steps, nlohmann::ordered_json* row) {
  for (size_t i = 0; i < seconds_.size(); ++i) {
    (*row)[kPhaseKeys[i]] = 1e3 * seconds_[i] / static_cast<double>(steps > 0 ? steps : 1);
  }
}

}  // namespace tessera::train
