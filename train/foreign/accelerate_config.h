// SPDX-License-Identifier: Apache-2.0
// Hugging Face Accelerate's configuration: `default_config.yaml`, and the flags of `accelerate
// launch`.
//
//   TESSERA_ASSIGN_OR_RETURN(const AccelerateConfig config, ReadAccelerateConfig(path));
//   // config.num_processes ranks of `tessera train ...`, with config.keys
//
// Every key of Accelerate's documentation is declared with what becomes of it; docs/migration.md
// lists them.
#ifndef TESSERA_TRAIN_FOREIGN_ACCELERATE_CONFIG_H_
#define TESSERA_TRAIN_FOREIGN_ACCELERATE_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"
#include "train/foreign/foreign_keys.h"

namespace tessera::train {

struct AccelerateConfig {
  // Keys of a run (train/config/run_config.h); "deepspeed" is the path of a file or its content.
  nlohmann::json keys = nlohmann::json::object();
  // How it is started.
  int64_t num_processes = 1;  // of all machines
  int64_t num_machines = 1;
  int64_t machine_rank = 0;
  std::string main_process_ip;
  int64_t main_process_port = 0;  // 0: any
  bool use_cpu = false;
  std::string gpu_ids;   // "0,1"; "" or "all": all
  std::string hostfile;  // of DeepSpeed's or mpirun's section
  // What became of each key.
  std::vector<KeyVerdict> verdicts;
};

// The keys, by their place in the file: "fsdp_config.fsdp_sharding_strategy".
const ForeignTable& AccelerateKeys();

// A flag of `accelerate launch` that stands for a key.
struct AccelerateFlag {
  std::string name;        // "fsdp_sharding_strategy"
  bool is_switch = false;  // needs no value: "use_fsdp"
};
std::vector<AccelerateFlag> AccelerateFlags();

// The settings of a YAML or JSON file; or, where `path` begins with a brace, those that it spells.
StatusOr<nlohmann::json> ReadAccelerateSettings(const std::string& path);
// Of such settings. Fails for a key that is refused or unknown, naming it.
StatusOr<AccelerateConfig> ReadAccelerateConfig(const std::string& path);

// From settings laid out like the file (train/foreign/yaml_file.h reads one), or like the flags of
// `accelerate launch`, which have no sections and win over those: {"num_processes": "2",
// "use_fsdp": true, "fsdp_sharding_strategy": "FULL_SHARD"}. `source` is what messages name.
StatusOr<AccelerateConfig> TranslateAccelerate(const nlohmann::json& settings,
                                               const std::string& source);

// The same, where refused keys leave their verdicts only.
AccelerateConfig JudgeAccelerate(const nlohmann::json& settings, const std::string& source);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_ACCELERATE_CONFIG_H_
