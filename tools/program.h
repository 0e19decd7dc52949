// The command line as a library: a program of one's own has all of `tessera`'s commands, with
// arguments, tasks, families and parts of a run of its own.
//
//   int main(int argc, char** argv) {
//     train::AddArguments<MyOptions>();              // train/config/arguments.h
//     return tools::RunProgram(argc, argv, {.name = "mine", .parts_of_run = MyParts});
//   }
//
// examples/focal_loss.cc is one: `focal_loss train bert-mini --data sst2.tsv --focal-gamma 2`.
#ifndef TESSERA_TOOLS_PROGRAM_H_
#define TESSERA_TOOLS_PROGRAM_H_

#include <functional>
#include <string>

#include "core/status.h"
#include "train/config/run_config.h"
#include "train/run_setup.h"
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

// Reads the arguments, runs the command, reports a failure. Returns the exit code
// (tools/command_line.h).
int RunProgram(int argc, char** argv, const Program& program = {});

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_PROGRAM_H_
