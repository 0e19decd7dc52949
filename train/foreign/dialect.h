// SPDX-License-Identifier: Apache-2.0
// Whose defaults hold where a run says nothing. A command line that was written for another system
// leaves unsaid what that system's users take for granted: Hugging Face's learning rate of 5e-5
// that falls to 0, FlagAI's batch of one. A run that uses such a system's names gets its defaults.
//
//   TESSERA_ASSIGN_OR_RETURN(const Dialect* dialect, DialectOf({&file_keys, &flag_keys}));
//   if (dialect != nullptr) ApplyDialect(*dialect, given, &config, &verdicts);
//
// The names that every command of a system has decide: `output_dir` (Hugging Face), `env_type` with
// FlagAI's values, `micro_batch_size` with `train_iters` (Megatron-LM), `BATCH_SIZE` with
// `NUM_EPOCHS` (Colossal-AI). DeepSpeed's files,
// Accelerate's, PEFT's, TRL's and LLaMA-Factory's names belong to Hugging Face's dialect. `dialect`
// says it by name; "tessera" are our own defaults.
#ifndef TESSERA_TRAIN_FOREIGN_DIALECT_H_
#define TESSERA_TRAIN_FOREIGN_DIALECT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"
#include "train/config/run_config.h"
#include "train/foreign/foreign_keys.h"

namespace tessera::train {

struct Dialect {
  std::string name;    // "hugging-face"
  std::string system;  // "Hugging Face"
  // Keys of ours with that system's defaults, in the order in which they are set: one that means
  // nothing to a run (another optimizer's) is left out.
  std::vector<std::pair<std::string, nlohmann::json>> defaults;
};

// All but "tessera", in the order of DialectNames().
const std::vector<Dialect>& Dialects();
// nullptr: "tessera", or no such name.
const Dialect* FindDialect(const std::string& name);

// What the names in some objects of keys say; nullptr: nothing. Fails where two dialects are spoken
// that differ in the default of a key which `config` does not set.
StatusOr<const Dialect*> DialectOf(const std::vector<const nlohmann::json*>& given,
                                   const RunConfig& config);

// Sets the defaults of keys that the run does not set. Adds a verdict of KeyFate::kDefault for each
// that is not ours as well.
void ApplyDialect(const Dialect& dialect, RunConfig* config, std::vector<KeyVerdict>* verdicts);

// Which system's a name is that is not ours: "Hugging Face". "": one of ours, or unknown.
std::string SystemOf(const std::string& name);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_DIALECT_H_
