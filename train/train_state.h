// SPDX-License-Identifier: Apache-2.0
// Where a run stands: what callbacks read and rows of metrics tell.
#ifndef TESSERA_TRAIN_TRAIN_STATE_H_
#define TESSERA_TRAIN_TRAIN_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/json_member.h"

namespace tessera::train {

struct TrainState {
  int64_t step = 0;  // optimizer steps taken
  int64_t total_steps = 0;
  int64_t samples = 0;  // drawn so far
  double epoch = 0;     // passes over the data so far
  double loss = 0;      // of the last step
  double grad_norm = 0;
  std::map<std::string, double> auxiliaries;  // likewise, by name (models/auxiliary.h)
  std::optional<double> usual_loss;           // a running mean, where spikes are looked for
  double lr = 0;
  // Of losses that are scaled: the scale that the next step begins with, and how many updates were
  // left out because gradients overflowed.
  std::optional<double> loss_scale;
  int64_t skipped_steps = 0;
  std::optional<double> val_loss;  // of the last evaluation
  OrderedJsonMember val_metrics = OrderedJsonMember::Object();
  // Of the last step, on all ranks; and how long it took, on this one. A step without targets has
  // no loss.
  bool has_targets = true;
  int64_t tokens = 0;
  double seconds = 0;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_TRAIN_STATE_H_
