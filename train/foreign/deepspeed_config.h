// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON configuration as keys of a run's configuration (train/config/run_config.h).
//
//   // {"train_micro_batch_size_per_gpu": 8, "fp16": {"enabled": true}, ...}
//   const Translation ds = TranslateDeepSpeed(json, "ds.json", data_parallel_ranks);
//   TESSERA_RETURN_IF_ERROR(ds.status());
//   TESSERA_RETURN_IF_ERROR(ApplyRunConfigJson(ds.keys, "ds.json", &config));
//
// Every key of DeepSpeed's documentation ("DeepSpeed Configuration JSON") is declared
// (train/foreign/deepspeed_keys.cc): translated, without effect, or refused by name with the
// reason. An unknown key is refused with the nearest known one, and so are keys that contradict
// each other. "auto" leaves a key to the run's own settings. Where the file has no scheduler and no
// clipping DeepSpeed has none either: `defaults` then has a constant rate and no clipping.
#ifndef TESSERA_TRAIN_FOREIGN_DEEPSPEED_CONFIG_H_
#define TESSERA_TRAIN_FOREIGN_DEEPSPEED_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/foreign/foreign_keys.h"

namespace tessera::train {

// Rows of a forward pass and forward passes of a step, as flags and the run's own file give them.
// Without them they are what the file, or DeepSpeed, says.
struct RunBatch {
  std::optional<int64_t> flag_micro = {};
  std::optional<int64_t> flag_steps = {};
  std::optional<int64_t> file_micro = {};
  std::optional<int64_t> file_steps = {};
};

// `source` is what messages name. `world_size` is the number of data-parallel ranks (DeepSpeed's
// number of GPUs, divided by the model-parallel size), which train_batch_size counts.
Translation TranslateDeepSpeed(const nlohmann::json& ds, const std::string& source, int world_size,
                               const RunBatch& run = {});

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_DEEPSPEED_CONFIG_H_
