// SPDX-License-Identifier: Apache-2.0
// The learning rate as a function of the step.
//
//   TESSERA_ASSIGN_OR_RETURN(Schedule schedule,
//                            MakeSchedule({.kind = "cosine", .lr = 3e-4, .min_lr = 3e-5,
//                                          .warmup_steps = 100, .total_steps = 1000}));
//   optimizer.set_learning_rate(schedule.At(step));   // step counts from 1: the one to be taken
//
// Nothing advances a state: a resumed run asks for the step it is at. With s the step (and the
// offset, at least 0), W the warm-up steps, T all steps, r the rate that warm-up begins at and
// x = (s - W) / (T - W) held within [0, 1]:
//   warm-up, s <= W        r + (lr - r) * s / W                         up to lr
//     log                  r + (lr - r) * log(s + 1) / log(W)           s < W, W at least 2
//     cosine               r + (lr - r) * (1 - cos(pi s / W)) / 2
//     1-sqrt               r + (lr - r) * (1 - sqrt(1 - s / W))
//   constant               lr
//   linear                 lr + (min_lr - lr) * x                       min_lr at T and after
//   cosine                 min_lr + (lr - min_lr) (1 + cos(2 pi c x)) / 2, c cycles, usually 1/2
//                          (Loshchilov and Hutter 2017)
//   cosine_with_restarts   the same over the fraction of c x, from lr again c times; c usually 1
//   polynomial             min_lr + (lr - min_lr) (1 - x)^power
//   inverse_sqrt           max(min_lr, lr * sqrt(t / (s + t - W))), t the timescale, usually W, or
//                          10000 without warm-up (Vaswani et al. 2017)
//   warmup_stable_decay    lr until T - D, then along a line, cosine or 1-sqrt (1 - sqrt(y)) of
//                          y = (s - (T - D)) / D to min_lr      (Hu et al. 2024, "MiniCPM")
// The counting of others, with e = s - 1, where it is not the offset alone:
//   kColossalAi   warm-up lr * (e + 1) / W for e < W, of linear lr * (e + 1) / (W + 1);
//                 x = (e - W) / (T - W)
//   kFlagAi       s is e, and x = (e - W) / T
#ifndef TESSERA_OPTIM_SCHEDULE_H_
#define TESSERA_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::optim {

// Whose count of steps a schedule follows, as above.
enum class ScheduleCounting : uint8_t { kTessera, kColossalAi, kFlagAi };

// A schedule before it is made.
struct ScheduleConfig {
  std::string kind = "constant";  // of ScheduleNames()
  double lr = 0;
  double min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;             // of kinds that end
  std::string warmup_type = "linear";  // of WarmupNames()
  double warmup_min_lr = 0;            // r
  // The schedule's step less the run's: Hugging Face's schedulers count from 0 (-1), DeepSpeed's
  // from -1 (-2).
  int64_t offset = 0;
  ScheduleCounting counting = ScheduleCounting::kTessera;
  std::optional<double> cycles = {};      // c
  double power = 1;                       // of polynomial
  std::optional<int64_t> timescale = {};  // t
  int64_t decay_steps = 0;                // D
  std::string decay_type = "linear";      // of DecayNames()
};

// The kinds, those of warm-ups, the decays of warmup_stable_decay, and the names of countings in
// their order.
const std::vector<std::string>& ScheduleNames();
const std::vector<std::string>& WarmupNames();
const std::vector<std::string>& DecayNames();
const std::vector<std::string>& CountingNames();

class Schedule {
 public:
  // The learning rate of step `step` >= 1 of the run (less is taken as 1).
  double At(int64_t step) const;
  const ScheduleConfig& config() const { return config_; }

 private:
  friend StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config);
  explicit Schedule(const ScheduleConfig& config) : config_(config) {}
  double Warmup(double step) const;
  // A share of lr - min_lr, or, of inverse_sqrt, of lr.
  double DecayShare(double step, double x) const;

  ScheduleConfig config_;
};

// Refuses an unknown kind (also of a warm-up or a decay), rates that are negative, infinite or
// min_lr > lr, warmup_steps < 0, total_steps < 1 where the kind needs it, and decay_steps out of
// [1, total_steps]. A warm-up longer than the run is allowed.
StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config);

// Colossal-AI's schedulers of these names, as configurations: the rate of the run's n-th step is
// what they have after n - 1 of theirs.
ScheduleConfig CosineAnnealingWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps,
                                       double eta_min = 0);
ScheduleConfig LinearWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_SCHEDULE_H_
