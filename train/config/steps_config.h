// SPDX-License-Identifier: Apache-2.0
// How long a run is, and what a step of it takes.
#ifndef TESSERA_TRAIN_CONFIG_STEPS_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_STEPS_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options_fwd.h"

namespace tessera::train {

// The systems whose defaults a run may have (train/foreign/dialect.h); "tessera" are ours.
const std::vector<std::string>& DialectNames();

// Of a number of steps that may be a share of all, below 1, which is rounded up.
int64_t StepsOf(double steps, int64_t total);

struct StepsConfig {
  std::string dialect = "tessera";
  std::string out;  // the run's directory
  std::optional<int64_t> max_steps;
  double epochs = 1;
  int64_t batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  std::string loss_average = "targets";
  std::optional<int64_t> seq_len;
  bool shuffle = true;
  int64_t seed = 0;
  std::optional<int64_t> data_seed;
  bool group_by_length = false;
  bool drop_last = false;
  bool join_epochs = true;
  std::optional<double> time_limit;  // seconds
  std::string on_non_finite = "stop";
  bool check_finite = false;
  double spike_factor = 0;
  bool overwrite = false;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_STEPS_CONFIG_H_
