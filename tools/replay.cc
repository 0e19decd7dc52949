// SPDX-License-Identifier: Apache-2.0
// `tessera replay`: runs the step whose numbers were not finite again on one process, up to the
// operation that gave the first such number.
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>

#include "base/file.h"
#include "base/options.h"
#include "base/output_files.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"
#include "tools/tensor_file.h"
#include "train/foreign/run_keys.h"
#include "train/run/bad_step.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

using train::BadStep;

constexpr char kWriter[] = "tessera replay";

struct ReplayFlags {
  std::string file;
  std::string outputs;
  std::string device = "cpu";
  bool overwrite = false;
};

// Another layout of the same step.
void PutOnOneProcess(int64_t data_ranks, train::RunConfig* config) {
  for (const OptionTable* table : {&train::ParallelConfig::Table(), &train::ZeroConfig::Table()}) {
    for (const Option& option : table->options()) config->Unset(option.key);
  }
  config->gradient_accumulation_steps *= data_ranks;
}

std::string PlaceText(const BadNumber& bad) {
  if (bad.operation.empty()) return Concat("the gradient of ", bad.module);  // of all micro-batches
  const bool of_result = bad.kind != BadNumber::Kind::kGradient;
  return Concat(of_result ? "result " : "input ", bad.index, " of '", bad.operation, "'",
                bad.module.empty() ? "" : " in " + bad.module, " in the ",
                bad.place.backward ? "backward" : "forward", " pass of micro-batch ",
                bad.place.micro_batch);
}

// Chunks and numbers of operations depend on the layout.
bool SamePlace(const BadNumber& a, const BadNumber& b) {
  const auto place = [](const BadNumber& bad) {
    return std::tie(bad.place.micro_batch, bad.place.backward, bad.operation, bad.module, bad.kind,
                    bad.index);
  };
  return place(a) == place(b);
}

std::string NumberText(const NumbersSummary& numbers) {
  return Concat(numbers.value, " at element ", numbers.first, " of ", DTypeName(numbers.dtype),
                numbers.shape);
}
bool SameNumber(const NumbersSummary& a, const NumbersSummary& b) {
  return NumberText(a) == NumberText(b);
}

// Fails where the step began to go wrong at another operation of the run.
Status CompareWithRun(const ReplayFlags& flags, const BadNumber& run, const BadNumber& here) {
  if (!SamePlace(run, here)) {
    return Internal(flags.file, ": the run has its first number that is not finite at ",
                    PlaceText(run), ", and this step at ", PlaceText(here));
  }
  return WriteOutBeside(
      flags.outputs,
      SameNumber(run.numbers, here.numbers)
          ? Concat("the run had the same number there: ", NumberText(run.numbers), "\n")
          : Concat("the run had another number there: ", NumberText(run.numbers), "\n"));
}

Status RunReplay(ReplayFlags flags) {
  flags.outputs = OutputPath(flags.outputs);
  TESSERA_ASSIGN_OR_RETURN(const train::WrittenBadStep run, train::ReadBadStep(flags.file));
  const std::string out = std::filesystem::path(flags.file).parent_path().string();
  std::optional<OutputLock> lock;
  if (!flags.outputs.empty()) {
    const ClaimOptions claim = {
        .reads = {flags.file, JoinPath(out, "config.json"), JoinPath(out, train::kBadStep)},
        .overwrite = flags.overwrite,
        .is_own = [](const std::string& path) { return IsTensorFileOf(kWriter, path); }};
    TESSERA_RETURN_IF_ERROR(ClaimOutput(flags.outputs, claim, &lock));
  }
  train::RunConfig config;
  TESSERA_RETURN_IF_ERROR(train::ReadRunConfig(JoinPath(out, "config.json"), &config));
  config.out = out.empty() ? "." : out;
  config.device = flags.device;
  PutOnOneProcess(run.data_ranks, &config);
  TESSERA_ASSIGN_OR_RETURN(const train::RunSetup setup, train::PrepareRun(config));
  train::Trainer trainer(setup.config, *setup.model, setup.data);
  models::Bundle tensors;
  TESSERA_ASSIGN_OR_RETURN(const std::optional<BadStep> here, trainer.Replay(run.step, &tensors));
  if (!here) {
    return Internal(flags.file, ": all numbers of step ", run.step,
                    " are finite when it runs again here");
  }
  TESSERA_RETURN_IF_ERROR(
      WriteOutBeside(flags.outputs, Concat("step ", run.step, ": ", here->Text({}), "\n")));
  if (!flags.outputs.empty()) {
    TESSERA_RETURN_IF_ERROR(WriteTensorFile(flags.outputs, tensors.entries(), kWriter));
  }
  return CompareWithRun(flags, run.bad.number, here->number);
}

}  // namespace

void AddReplayCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("replay", "Run a step again up to its first number that is not finite");
  using F = ReplayFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("file", &F::file, "`bad_step.json` of a run's folder", {.type = "FILE"})
      .Add("outputs", &F::outputs,
           "written: safetensors file of the operation's input.0, ... and result.0, ...; of a "
           "gradient function gradient.result.0, ... and gradient.input.0, ...",
           {.type = "FILE"})
      .Add("device", &F::device, "`cpu` or `cuda`")
      .Add("overwrite", &F::overwrite, kOverwriteHelp);
  command->footer(
      "Example:\n  tessera replay runs/book/bad_step.json --outputs operation.safetensors");
  RunWith<F>(command, state, std::move(table), {.by_place = {"file"}, .required = {"file"}},
             [](const CLI::App&, const F& flags) { return RunReplay(flags); });
}

}  // namespace tessera::tools
