// SPDX-License-Identifier: Apache-2.0
// Where a rank computes.
#ifndef TESSERA_TRAIN_CONFIG_DEVICE_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_DEVICE_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options_fwd.h"

namespace tessera::train {

struct DeviceConfig {
  std::string device = "cpu";
  std::optional<int64_t> threads;
  bool deterministic = false;
  bool cuda_graph = true;
  bool check_memory = true;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_DEVICE_CONFIG_H_
