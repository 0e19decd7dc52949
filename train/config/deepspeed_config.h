// DeepSpeed's JSON configuration as keys of a run's configuration (train/config/run_config.h).
//
//   // {"train_micro_batch_size_per_gpu": 8, "fp16": {"enabled": true}, ...}
//   TESSERA_ASSIGN_OR_RETURN(nlohmann::json keys,
//                            TranslateDeepSpeedConfig(json, "ds.json", data_parallel_ranks));
//   TESSERA_RETURN_IF_ERROR(ApplyRunConfigJson(keys, "ds.json", &config));
//
// Every key of DeepSpeed's documentation ("DeepSpeed Configuration JSON") is translated, or needs
// nothing here (it asks for what always holds), or is refused by name with the reason. An unknown
// key is refused with the nearest known one, and so are keys that contradict each other. "auto"
// leaves a key to Tessera's flag or default, as does a section that is not there. docs/migration.md
// lists what becomes of each key.
#ifndef TESSERA_TRAIN_CONFIG_DEEPSPEED_CONFIG_H_
#define TESSERA_TRAIN_CONFIG_DEEPSPEED_CONFIG_H_

#include <string>

#include "core/status.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

// An object of RunConfig keys. `source` is what messages name. `world_size` is the number of
// data-parallel ranks (DeepSpeed's number of GPUs, divided by the model-parallel size), which
// train_batch_size counts.
StatusOr<nlohmann::json> TranslateDeepSpeedConfig(const nlohmann::json& ds,
                                                  const std::string& source, int world_size);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_CONFIG_DEEPSPEED_CONFIG_H_
