// SPDX-License-Identifier: Apache-2.0
// `tessera eval`: the loss of a model on data, and the metrics of its task.
#include <string>

#include "base/options.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/evaluation_line.h"
#include "tools/field_flags.h"
#include "tools/scratch_directory.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

struct EvalFlags {
  std::string model;
  int64_t batches = 0;
  FieldFlags fields;
  ComputeFlags compute;
};

Status RunEval(const CLI::App& command, const EvalFlags& flags) {
  train::RunConfig config;
  TESSERA_ASSIGN_OR_RETURN(config.model, FolderOrArchive(flags.model));
  TESSERA_RETURN_IF_ERROR(flags.fields.ApplyTo(command, &config));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags.compute));
  const ScratchDirectory scratch;
  TESSERA_ASSIGN_OR_RETURN(
      const train::RunSetup setup,
      train::PrepareEvaluation(config, build,
                               {.cache = scratch.path(), .quantize = QuantizeOf(flags.compute)}));
  train::Trainer trainer(setup.config, *setup.model, setup.data);
  TESSERA_ASSIGN_OR_RETURN(const train::EvaluationResult found,
                           trainer.Evaluate(*setup.data.validation, flags.batches));
  if (found.targets == 0) {
    return InvalidArgument(setup.config.data[0], ": the data have no target, and so no loss");
  }
  TESSERA_RETURN_IF_ERROR(WriteOut(EvaluationLine(setup, found)));
  if (setup.data.objective.samples == nullptr) return OkStatus();
  for (const std::string& sample : setup.data.objective.samples(*setup.model)) {
    TESSERA_RETURN_IF_ERROR(WriteOut(sample + "\n"));
  }
  return OkStatus();
}

}  // namespace

void AddEvalCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("eval", "the loss and the metrics of a model on data");
  auto flags = std::make_shared<EvalFlags>();
  AddModel(command, &flags->model)->required();
  for (const Option* key : train::RunConfigKeys()) {
    if (key->notes.evaluation) flags->fields.Add(command, *key);
  }
  command->get_option("--data")->required();
  command->add_option("--batches", flags->batches, "at most so many batches (all)")->type_name("N");
  AddComputeFlags(command, &flags->compute);
  command->footer("Example:\n  tessera eval --model runs/book/model --data other.txt");
  command->callback([command, flags, &state] {
    state.run = [command, flags] { return RunEval(*command, *flags); };
  });
}

}  // namespace tessera::tools
