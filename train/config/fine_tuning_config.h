// SPDX-License-Identifier: Apache-2.0
// Training a few parameters beside a frozen model: an adapter (models/hub/adapter.h).
#ifndef TESSERA_TRAIN_CONFIG_FINE_TUNING_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_FINE_TUNING_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/options_fwd.h"

namespace tessera::train {

struct FineTuningConfig {
  // "": all of the model trains; "lora", "rslora", "dora", "prefix": a new adapter; else the folder
  // of one.
  std::string adapter;
  int64_t lora_r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  // Names at commas, a regular expression of whole names, or "all-linear"; "": the family's.
  std::string target_modules;
  std::string exclude_modules;
  std::string modules_to_save;  // names at commas
  std::string adapter_bias = "none";
  std::string init_lora_weights = "true";  // AdapterConfig::init
  int64_t pre_seq_len = 16;
  bool prefix_projection = false;
  std::optional<int64_t> prefix_hidden_size;

  static const OptionTable& Table();
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_FINE_TUNING_CONFIG_H_
