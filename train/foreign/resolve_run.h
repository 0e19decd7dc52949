// SPDX-License-Identifier: Apache-2.0
// A run's configuration from all that was given: files of our own and of other systems, and flags.
//
//   TESSERA_ASSIGN_OR_RETURN(const ResolvedRun run,
//                            ResolveRun({.deepspeed = "ds.json", .flags = {{"lr", 1e-3}}}));
//   TESSERA_RETURN_IF_ERROR(run.status());           // or show run.verdicts (`tessera explain`)
//   TESSERA_RETURN_IF_ERROR(run.config.Validate());
//
// Later wins: defaults (of the run's dialect, train/foreign/dialect.h), `config`, `accelerate`,
// `deepspeed`, flags. What a DeepSpeed file says of a step's batch is solved together with the
// others, and `num_microbatches` or `microbatch_size` cut that batch at the end.
#ifndef TESSERA_TRAIN_FOREIGN_RESOLVE_RUN_H_
#define TESSERA_TRAIN_FOREIGN_RESOLVE_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_member.h"
#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "train/config/run_config.h"
#include "train/foreign/foreign_keys.h"

namespace tessera::train {

struct RunSources {
  std::string config = {};                  // paths; "": none
  std::string accelerate = {};              // train/foreign/accelerate_config.h
  std::string deepspeed = {};               // train/foreign/deepspeed_config.h
  JsonMember flags = JsonMember::Object();  // by any name (train/foreign/run_keys.h)
  int world_size = 1;                       // of the ranks that were started
};

// The ranks that a configuration asks for itself, as FlagAI's do.
struct RunLaunch {
  int64_t num_nodes = 1;
  int64_t num_gpus = 1;  // of each node
  std::string hostfile = {};
  bool not_call_launch = false;  // somebody else starts them
  int64_t ranks() const { return num_nodes * num_gpus; }
};

struct ResolvedRun {
  RunConfig config;
  RunLaunch launch;
  std::optional<std::string> resume;  // the checkpoint to continue from; "": the newest
  std::vector<KeyVerdict> verdicts;   // of every key that was given, and of a dialect's defaults
  std::vector<std::string> notes;     // lines for the user: "defaults: Hugging Face's"

  Status status() const { return FirstRefusal(verdicts); }
};

// Fails for a file that cannot be read.
StatusOr<ResolvedRun> ResolveRun(const RunSources& sources);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_FOREIGN_RESOLVE_RUN_H_
