// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes: `wall_clock_breakdown`, and phases of a profile.
//
//   PhaseClock clock(device);      // a phase ends when the device has done its work
//   PhaseClock::Scope scope(&clock, Phase::kForward);
//   ...
//   clock.Report(steps, &row);     // {"forward_ms": ..., ...}: the mean of each phase
//   clock.timeline();              // of a pipeline, whose phases alternate: the last step's
//   actions
#ifndef TESSERA_TRAIN_ENGINE_PHASE_CLOCK_H_
#define TESSERA_TRAIN_ENGINE_PHASE_CLOCK_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/profiler.h"
#include "dist/pipeline/executor.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

// Forward and backward passes of a pipeline alternate: they count as one phase.
enum class Phase { kData, kForward, kBackward, kPipeline, kReduce, kOptimizer };
// What each is called in a row of metrics, in that order.
inline constexpr std::array<const char*, 6> kPhaseKeys = {
    "data_ms", "forward_ms", "backward_ms", "pipeline_ms", "reduce_ms", "optimizer_ms"};

class PhaseClock {
 public:
  // `waits_for` is waited for where phases end; nullopt: the host's time alone is taken.
  explicit PhaseClock(const std::optional<Device>& waits_for = std::nullopt)
      : waits_for_(waits_for) {}
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  // Adds the time of its scope to a phase.
  class Scope {
   public:
    Scope(PhaseClock* clock, Phase phase) : clock_(clock), phase_(phase) {}
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    static std::string_view NameOf(Phase phase) {  // "data" of "data_ms"
      const std::string_view key = kPhaseKeys[static_cast<size_t>(phase)];
      return key.substr(0, key.find('_'));
    }

    PhaseClock* clock_;
    Phase phase_;
    const ProfileSpan span_{"phase", NameOf(phase_)};
    const double start_ = Now();
  };

  // Milliseconds per step of each phase since the last report.
  void Report(int64_t steps, nlohmann::ordered_json* row);
  void Reset() { seconds_ = {}; }
  void KeepTimeline(std::vector<dist::TimedAction> timeline) { timeline_ = std::move(timeline); }
  const std::vector<dist::TimedAction>& timeline() const { return timeline_; }
  bool waits() const { return waits_for_.has_value(); }

 private:
  static double Now();  // seconds, of a clock that only goes forward

  const std::optional<Device> waits_for_;
  std::array<double, kPhaseKeys.size()> seconds_ = {};
  std::vector<dist::TimedAction> timeline_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_ENGINE_PHASE_CLOCK_H_
