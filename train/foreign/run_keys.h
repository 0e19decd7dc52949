// SPDX-License-Identifier: Apache-2.0
// Every name under which a run's keys can be given, in a file or as a flag: our own keys, other
// systems' names for them (the aliases of their declarations), and names that need translating,
// have no effect here, or are refused.
//
//   const Translation run = TranslateRunKeys({{"warmup_ratio", 0.1}, {"lr", 1e-3}}, "run.json");
//   // run.keys: {"warmup_steps": 0.1, "lr": 0.001}
//
// Beside keys of a run, `keys` may have "deepspeed", DeepSpeed's configuration or the path of one,
// and "resume", the checkpoint to continue from ("": the newest).
#ifndef TESSERA_TRAIN_FOREIGN_RUN_KEYS_H_
#define TESSERA_TRAIN_FOREIGN_RUN_KEYS_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/config/run_config.h"
#include "train/foreign/foreign_keys.h"

namespace tessera::train {

// The arguments of another system that are neither keys of ours nor aliases of them.
struct ForeignSystem {
  std::string name;  // "Hugging Face"
  ForeignTable keys;
};
const ForeignSystem& HuggingFace();  // TrainingArguments of versions 4 and 5
const ForeignSystem& Trl();          // SFTConfig, DPOConfig and what goes with them
const ForeignSystem& FlagAi();       // Trainer and its arguments
const ForeignSystem& ColossalAi();   // the plugins' arguments, and keys of its older files
const ForeignSystem& MegatronLm();   // its training arguments
// Names of systems whose files are not read, refused with the key of ours that does what they ask.
const ForeignSystem& OtherSystems();
std::vector<const ForeignSystem*> ForeignSystems();
// Of FlagAI's keys those that depend on one another: its launcher's, and the name of a model.
void TranslateFlagAi(ForeignKeys& run);
// The adapter that TRL's arguments ask for.
void TranslateTrl(ForeignKeys& run);

// A name for a share of all steps, which `warmup_steps` below 1 is.
ForeignKey WarmupShare(std::string name);

// The numbers of "949,50,1" or [949, 50, 1], Megatron-LM's shares of data for training, validation
// and test, of one to three.
StatusOr<std::vector<double>> Shares(const nlohmann::json& value);

// A switch as a file or a flag writes it: also 1 and 0, "yes", "no", "on", "off", "True", "False".
bool IsTrue(const nlohmann::json& value);
// A switch whose true is `keys`.
ForeignKey WhereTrue(std::string name, std::string ours, nlohmann::json keys);

// All of them, and the aliases of our own keys.
const ForeignTable& RunKeys();

Translation TranslateRunKeys(const nlohmann::json& given, const std::string& source);
// Of flags: messages name "--lr", or "--push_to_hub" where the name is another system's.
Translation TranslateRunFlags(const nlohmann::json& given);

// Overrides keys from a JSON object, by any name. `source` is what
// messages name.
Status ApplyRunConfigJson(const nlohmann::json& json, const std::string& source, RunConfig* config);
Status ReadRunConfig(const std::string& path, RunConfig* config);

// A translation's `defaults`, of keys that the run does not set, and its `shares_of_lr`, of keys
// that nobody gave.
void ApplyDefaults(const nlohmann::json& defaults, RunConfig* config);
Status ApplySharesOfLr(const nlohmann::json& shares, const std::string& source, RunConfig* config);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_RUN_KEYS_H_
