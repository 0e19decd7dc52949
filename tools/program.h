// SPDX-License-Identifier: Apache-2.0
// The command line as a library. `tessera` itself is
//
//   int main(int argc, char** argv) { return tessera::Main(argc, argv); }
//
// and a program of one's own that says the same has all of its commands for the families, tasks and
// optimizers that are linked in beside it (examples/outside). It may have arguments and parts of a
// run of its own:
//
//   int main(int argc, char** argv) {
//     train::AddArguments<MyOptions>();              // train/config/arguments.h
//     return tessera::Main(argc, argv, {.name = "mine", .parts_of_run = MyParts});
//   }
//
// examples/focal_loss.cc is one: `focal_loss train bert-mini --data sst2.tsv --focal-gamma 2`.
#ifndef TESSERA_TOOLS_PROGRAM_H_
#define TESSERA_TOOLS_PROGRAM_H_

#include <functional>
#include <string>

#include "base/status.h"
#include "train/config/run_config.h"
#include "train/run/run_setup.h"
#include "train/trainer_parts.h"

namespace tessera::tools {

struct Program {
  std::string name = "tessera";
  std::string description = "trains and runs transformers";
  // Of `train`, on every rank: the parts of a run that the program replaces. What is in `setup`,
  // such as the data, may be replaced too. nullptr: the trainer's own.
  std::function<StatusOr<train::TrainerParts>(const train::RunConfig& config,
                                              train::RunSetup* setup)>
      parts_of_run = nullptr;
};

}  // namespace tessera::tools

namespace tessera {

// Reads the arguments, runs the command, reports a failure. Returns the exit code: 0, or 2 for
// wrong usage or configuration, or 1 (kExitCodes of tools/command_line.h).
int Main(int argc, char** argv, const tools::Program& program = {});

}  // namespace tessera

#endif  // TESSERA_TOOLS_PROGRAM_H_
