// SPDX-License-Identifier: Apache-2.0
// Number formats, and the loss scaling that float16 needs.
#ifndef TESSERA_TRAIN_CONFIG_PRECISION_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_PRECISION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/options_fwd.h"
#include "core/dtype.h"
#include "optim/grad_scaler.h"

namespace tessera::train {

// What other systems call the formats.
inline std::vector<std::pair<std::string, std::string>> DTypeNames() {
  return {{"fp32", "float32"}, {"bf16", "bfloat16"}, {"fp16", "float16"}};
}

// Keys of dtypes.
struct PrecisionConfig {
  std::string dtype = "float32";
  std::string autocast;    // none
  std::string grad_dtype;  // float32 where the dtype is a half, else the dtype

  // Whether gradients pass through float16, so that the loss is scaled.
  bool scales_loss() const { return dtype == "float16" || autocast == "float16"; }

  // What products of float32 operands compute in.
  DType product_dtype() const { return autocast.empty() ? DType::kFloat32 : *ParseDType(autocast); }

  static const OptionTable& Table();
};

// Keys of the scaling of losses under float16.
struct LossScalingConfig {
  std::optional<double> loss_scale;
  double initial_scale = 65536;
  double min_scale = 1;
  double max_scale = 4294967296;
  double growth_factor = 2;
  int64_t growth_interval = 1000;
  double backoff_factor = 0.5;
  int64_t hysteresis = 2;

  optim::GradScalerOptions scaler_options() const;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_PRECISION_CONFIG_H_
