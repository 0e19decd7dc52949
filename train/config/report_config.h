// SPDX-License-Identifier: Apache-2.0
// What a run reports, and what it keeps.
#ifndef TESSERA_TRAIN_CONFIG_REPORT_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_REPORT_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/options_fwd.h"

namespace tessera::train {

struct ReportConfig {
  double log_interval = 10;  // below 1 a share of all steps, as the others
  std::string log_strategy = "steps";
  double eval_interval = 0;  // at the end
  std::string eval_strategy = "steps";
  int64_t eval_batches = 0;  // all
  double save_interval = 0;  // at the end
  std::string save_strategy = "steps";
  int64_t num_checkpoints = 2;
  bool async_save = false;
  std::optional<int64_t> early_stopping_patience;
  double early_stopping_threshold = 0;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "loss";
  std::optional<bool> greater_is_better;
  std::vector<std::string> report_to;  // metrics.jsonl alone
  std::vector<std::string> sample_prompts;
  int64_t sample_tokens = 40;
  bool wall_clock_breakdown = false;
  std::string trace;
  std::string profile;  // a file
  bool profile_summary = false;
  int64_t profile_after = 3;
  int64_t profile_steps = 2;
  std::string log_level = "info";
  std::string log_level_replica = "warning";
  bool log_on_each_node = false;
  bool progress_bar = true;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_REPORT_CONFIG_H_
