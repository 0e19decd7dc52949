// SPDX-License-Identifier: Apache-2.0
#include "train/run/loss_average.h"

#include "models/family.h"

namespace tessera::train {

bool AveragesMicroBatches(const RunConfig& config, const models::Model& model) {
  if (config.loss_average != "trainer") return config.loss_average == "micro_batches";
  if (config.task == "preference") return true;  // TRL's DPOTrainer computes its own loss
  if (config.label_smoothing > 0) return true;   // as does its label smoother
  const auto family = models::FamilyOf(model.config());
  return family.ok() && !(*family)->loss_takes_num_items;
}

}  // namespace tessera::train
