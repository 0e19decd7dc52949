// SPDX-License-Identifier: Apache-2.0
// ZeRO: what data-parallel ranks share out among themselves (dist/store/zero_options.h).
#ifndef TESSERA_TRAIN_CONFIG_ZERO_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_ZERO_CONFIG_H_

#include <cstdint>
#include <string>

#include "base/options_fwd.h"

namespace tessera::train {

struct ZeroConfig {
  int64_t zero = 0;
  std::string communication_dtype;  // as they are
  bool cpu_offload = false;
  double offload_fraction = 1;
  bool offload_parameters = false;
  std::string auto_wrap_classes;  // with commas between
  int64_t auto_wrap_min_params = 0;
  std::string backward_prefetch = "backward_pre";
  bool forward_prefetch = true;
  bool limit_all_gathers = true;
  bool reshard_after_forward = true;
  int64_t prefetch_elements = 50'000'000;
  int64_t max_live_elements = 1'000'000'000;
  int64_t persistence_threshold = 0;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_ZERO_CONFIG_H_
