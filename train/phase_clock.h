// Where the time of a step goes: `wall_clock_breakdown`.
//
//   PhaseClock::Scope scope(&clock, Phase::kForward);
//   ...
//   clock.Report(steps, &row);     // {"forward_ms": ..., ...}: the mean of each phase
#ifndef TESSERA_TRAIN_PHASE_CLOCK_H_
#define TESSERA_TRAIN_PHASE_CLOCK_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/device.h"
#include "core/error.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

// Forward and backward passes of a pipeline alternate: they count as one phase.
enum class Phase { kData, kForward, kBackward, kPipeline, kReduce, kOptimizer };

class PhaseClock {
 public:
  // Adds the time of its scope to a phase; that of a device too, which is waited for.
  class Scope {
   public:
    Scope(PhaseClock* clock, Phase phase, const Device* device = nullptr)
        : clock_(clock), phase_(phase), device_(device) {}
    ~Scope() {
      try {
        if (device_ != nullptr) SynchronizeDevice(*device_);
      } catch (const Error&) {
        // The next use of the device says so.
      }
      clock_->seconds_[static_cast<size_t>(phase_)] +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseClock* clock_;
    Phase phase_;
    const Device* device_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

  // Milliseconds per step of each phase since the last report.
  void Report(int64_t steps, nlohmann::ordered_json* row) {
    static constexpr const char* kNames[] = {"data_ms",     "forward_ms", "backward_ms",
                                             "pipeline_ms", "reduce_ms",  "optimizer_ms"};
    for (size_t i = 0; i < seconds_.size(); ++i) {
      (*row)[kNames[i]] = 1e3 * seconds_[i] / static_cast<double>(steps > 0 ? steps : 1);
    }
  }
  void Reset() { seconds_ = {}; }

 private:
  std::array<double, 6> seconds_ = {};
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PHASE_CLOCK_H_
