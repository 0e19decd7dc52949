// SPDX-License-Identifier: Apache-2.0
// The flags that describe a run, as `tessera train` takes them: files of our own and of other
// systems, and a flag for every name of a key.
//
//   auto flags = std::make_shared<RunFlags>();
//   flags->Add(command);
//   TESSERA_ASSIGN_OR_RETURN(const train::ResolvedRun run, flags->Resolve(*command, ranks,
//   &names));
#ifndef TESSERA_TOOLS_RUN_FLAGS_H_
#define TESSERA_TOOLS_RUN_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "tools/field_flags.h"
#include "train/foreign/resolve_run.h"

namespace tessera::tools {

class RunFlags {
 public:
  // This object must outlive the parsing.
  void Add(CLI::App* command);
  // `world_size` ranks. Fails for a file that cannot be read; refused keys are in the verdicts.
  // `names` learns what the user calls the keys.
  StatusOr<train::ResolvedRun> Resolve(const CLI::App& command, int world_size,
                                       WrittenNames* names) const;

 private:
  FieldFlags source_flags_;  // the model, and files
  std::string resume_;
  FieldFlags fields_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_RUN_FLAGS_H_
