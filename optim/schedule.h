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
//   s <= W        r + (lr - r) * s / W                    up to lr
//   with `log`    r + (lr - r) * log(s + 1) / log(W)      for s < W, W at least 2 (DeepSpeed)
//   constant      lr
//   linear        lr + (min_lr - lr) * x                  min_lr at T and after
//   cosine        min_lr + (lr - min_lr) (1 + cos(pi x)) / 2   likewise (Loshchilov, Hutter 2017)
//   inverse_sqrt  max(min_lr, lr * sqrt(W / s))                (Vaswani et al. 2017)
//     without W   max(min_lr, lr * sqrt(10000 / (s + 10000)))  (Hugging Face)
#ifndef TESSERA_OPTIM_SCHEDULE_H_
#define TESSERA_OPTIM_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::optim {

struct ScheduleConfig {
  std::string kind = "constant";  // constant, linear, cosine, inverse_sqrt
  double lr = 0;
  double min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;             // linear and cosine only
  std::string warmup_type = "linear";  // linear, log
  double warmup_min_lr = 0;            // r
  // The schedule's step less the run's: Hugging Face's schedulers count from 0 (-1), DeepSpeed's
  // from -1 (-2).
  int64_t offset = 0;
};

// The kinds, and those of warm-ups.
const std::vector<std::string>& ScheduleNames();
const std::vector<std::string>& WarmupNames();

class Schedule {
 public:
  // The learning rate of step `step` >= 1 of the run (less is taken as 1).
  double At(int64_t step) const;
  const ScheduleConfig& config() const { return config_; }

 private:
  friend StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config);
  enum class Kind { kConstant, kLinear, kCosine, kInverseSqrt };
  Schedule(const ScheduleConfig& config, Kind kind) : config_(config), kind_(kind) {}

  ScheduleConfig config_;
  Kind kind_;
};

// Refuses an unknown kind (also of a warm-up), rates that are negative, infinite or min_lr > lr,
// warmup_steps < 0, and total_steps < 1 where the kind needs it. A warm-up longer than the run is
// allowed.
StatusOr<Schedule> MakeSchedule(const ScheduleConfig& config);

// Names known elsewhere, as configurations: ColossalAI's CosineAnnealingWarmupLR(total_steps,
// warmup_steps, eta_min) and LinearWarmupLR(total_steps, warmup_steps), which falls to 0.
ScheduleConfig CosineAnnealingWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps,
                                       double eta_min = 0);
ScheduleConfig LinearWarmupLR(double lr, int64_t total_steps, int64_t warmup_steps);

}  // namespace tessera::optim

#endif  // TESSERA_OPTIM_SCHEDULE_H_
