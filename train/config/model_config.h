// SPDX-License-Identifier: Apache-2.0
// Which model a run trains, and how it behaves in training.
#ifndef TESSERA_TRAIN_CONFIG_MODEL_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_MODEL_CONFIG_H_

#include <optional>
#include <string>

#include "base/options_fwd.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::train {

struct ModelConfig {
  std::string model;             // a preset's name or a folder
  std::string model_type;        // of a folder that does not say it; "": its own
  std::string config_overrides;  // "d_model=256,num_layers=3"
  bool ignore_mismatched_sizes = false;
  std::optional<double> dropout;
  double neftune_noise_alpha = 0;
  double label_smoothing = 0;
  bool checkpoint_activations = false;

  // The members of config_overrides, each with its value; without any, an empty object.
  StatusOr<nlohmann::json> Overrides() const;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_MODEL_CONFIG_H_
