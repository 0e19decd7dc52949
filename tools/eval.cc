// SPDX-License-Identifier: Apache-2.0
// `tessera eval`: the loss of a model on data, and the metrics of its task.
#include <string>

#include "base/options.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/evaluation_line.h"
#include "tools/field_flags.h"
#include "tools/scratch_directory.h"
#include "tools/settings.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

struct EvalFlags : ComputeFlags {
  std::string model;
  int64_t batches = 0;
};

Status RunEval(const CLI::App& command, const EvalFlags& flags, const FieldFlags& fields,
               WrittenNames* names) {
  train::RunConfig config;
  TESSERA_ASSIGN_OR_RETURN(config.model, FolderOrArchive(flags.model));
  TESSERA_RETURN_IF_ERROR(fields.ApplyTo(command, &config, names));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags));
  TESSERA_ASSIGN_OR_RETURN(const auto scratch, ScratchDirectory::Create());
  TESSERA_ASSIGN_OR_RETURN(
      const train::RunSetup setup,
      train::PrepareEvaluation(config, build,
                               {.cache = scratch->path(), .quantize = QuantizeOf(flags)}));
  train::Trainer trainer(setup.config, *setup.model, setup.data);
  train::EvaluationResult found;
  int64_t rows = 0;
  {
    const data::Dataset& all = *setup.data.validation;
    const int64_t batches = flags.batches < all.size() ? flags.batches : 0;
    const WatchedData data(all, "eval", batches * setup.config.batch_size);
    TESSERA_ASSIGN_OR_RETURN(found, trainer.Evaluate(data, flags.batches));
    rows = data.rows();
  }
  if (found.targets == 0) {
    return InvalidArgument(setup.config.data[0], ": the data have no target, and so no loss");
  }
  TESSERA_RETURN_IF_ERROR(WriteOut(EvaluationLine(setup, found, rows)));
  if (setup.data.objective.samples == nullptr) return OkStatus();
  for (const std::string& sample : setup.data.objective.samples(*setup.model)) {
    TESSERA_RETURN_IF_ERROR(WriteOut(sample + "\n"));
  }
  return OkStatus();
}

}  // namespace

void AddEvalCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("eval", "Print the loss and the metrics of a model on data");
  using F = EvalFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("model", &F::model, kModelHelp, {.type = "MODEL"})
      .Add("batches", &F::batches, "at most so many batches; 0: all", {.least = 0})
      .Include<F, ComputeFlags>();
  command->footer("Example:\n  tessera eval --model runs/book/model --data other.txt");
  auto fields = std::make_shared<FieldFlags>();
  RunWith<F>(command, state, std::move(table), {.by_place = {"model"}, .required = {"model"}},
             [fields, &state](const CLI::App& given, const F& flags) {
               return RunEval(given, flags, *fields, &state.names);
             });
  fields->AddEvaluation(command);
}

}  // namespace tessera::tools
