// SPDX-License-Identifier: Apache-2.0
// What becomes of gradients. What single optimizers ask stands with them (optim/).
#ifndef TESSERA_TRAIN_CONFIG_OPTIMIZER_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_OPTIMIZER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options_fwd.h"
#include "optim/schedule.h"

namespace tessera::train {

struct OptimizerConfig {
  std::string optimizer = "adamw";
  double lr = 3e-4;
  double weight_decay = 0.1;
  double warmup_steps = 0;  // below 1 a share of all steps
  std::string warmup_type = "linear";
  double warmup_min_lr = 0;
  std::string lr_schedule = "cosine";
  std::optional<double> min_lr;
  std::optional<int64_t> schedule_steps;
  int64_t schedule_offset = 0;
  std::string schedule_counting = "tessera";
  bool schedule_by_epoch = false;
  std::optional<double> lr_cycles;
  double lr_power = 1;
  std::optional<int64_t> lr_timescale;
  double lr_decay_steps = 0.1;  // below 1 a share of all steps
  std::string lr_decay_type = "linear";
  double max_grad_norm = 1;

  double final_lr() const { return min_lr.value_or(0.1 * lr); }
  // Of a run of so many steps; with schedule_by_epoch, epochs.
  optim::ScheduleConfig schedule_of(int64_t total) const;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_OPTIMIZER_CONFIG_H_
