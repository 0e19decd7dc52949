// SPDX-License-Identifier: Apache-2.0
// How long a run is, and what a step of it takes.
#ifndef TESSERA_TRAIN_CONFIG_STEPS_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_STEPS_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options_fwd.h"

namespace tessera::train {

struct StepsConfig {
  std::string out;  // the run's directory
  std::optional<int64_t> max_steps;
  double epochs = 1;
  int64_t batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  std::optional<int64_t> seq_len;
  bool shuffle = true;
  int64_t seed = 0;
  std::optional<int64_t> data_seed;
  bool group_by_length = false;
  bool drop_last = false;
  std::optional<double> time_limit;  // seconds
  std::string on_non_finite = "stop";
  bool detect_anomaly = false;
  bool overwrite = false;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_STEPS_CONFIG_H_
