// SPDX-License-Identifier: Apache-2.0
// `tessera predict`: what a model says of every row of data.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/open_file.h"
#include "base/options.h"
#include "base/output_files.h"
#include "nlohmann/json.hpp"
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

struct PredictFlags : ComputeFlags {
  std::string model;
  std::string out;
};

// A line for each row; one of a picture begins with its file.
std::string Lines(const train::PredictionResult& result, const data::Dataset& data) {
  std::string text;
  for (size_t i = 0; i < result.rows.size(); ++i) {
    train::PredictedRow line;
    const std::string name = data.NameOf(static_cast<int64_t>(i));
    if (!name.empty()) line["file"] = name;
    for (const auto& [key, value] : result.rows[i].items()) line[key] = value;
    text += line.dump(-1, ' ', false, train::PredictedRow::error_handler_t::replace) + "\n";
  }
  return text;
}

// Before the work is done, not after it.
Status CheckOut(const std::string& path) {
  const std::string file = BehindLinks(path);
  const size_t slash = file.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : file.substr(0, slash + 1);
  if (!IsDirectory(folder)) return NotFound(folder.substr(0, slash), ": no such folder (--out)");
  struct stat info = {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return SystemFailure(EISDIR, path);
  const bool is_stream = NamedDescriptor(path) >= 0 || (exists && !S_ISREG(info.st_mode));
  if (is_stream || access(folder.c_str(), W_OK) == 0) return OkStatus();
  return SystemFailure(errno, path);
}

Status RunPredict(const CLI::App& command, PredictFlags flags, const FieldFlags& fields,
                  WrittenNames* names) {
  flags.out = OutputPath(flags.out);
  TESSERA_RETURN_IF_ERROR(CheckOut(flags.out));
  train::RunConfig config;
  TESSERA_ASSIGN_OR_RETURN(config.model, FolderOrArchive(flags.model));
  TESSERA_RETURN_IF_ERROR(fields.ApplyTo(command, &config, names));
  TESSERA_RETURN_IF_ERROR(RefuseInputs({flags.out}, train::PathsRead(config)));
  TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build, ApplyComputeFlags(flags));
  TESSERA_ASSIGN_OR_RETURN(const auto scratch, ScratchDirectory::Create());
  TESSERA_ASSIGN_OR_RETURN(
      const train::RunSetup setup,
      train::PrepareEvaluation(
          config, build,
          {.cache = scratch->path(), .prediction = true, .quantize = QuantizeOf(flags)}));
  train::Trainer trainer(setup.config, *setup.model, setup.data);
  train::PredictionResult result;
  {
    const WatchedData data(*setup.data.validation, "predict");
    TESSERA_ASSIGN_OR_RETURN(result, trainer.Predict(data));
  }
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(flags.out, Lines(result, *setup.data.validation)));
  if (result.found && result.found->targets > 0) {
    TESSERA_RETURN_IF_ERROR(
        WriteOutBeside(flags.out, EvaluationLine(setup, *result.found, std::ssize(result.rows))));
  }
  return WriteOutBeside(flags.out, Concat(result.rows.size(), " predictions in ", flags.out, "\n"));
}

}  // namespace

void AddPredictCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("predict", "Write what a model says of each row of data");
  using F = PredictFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("model", &F::model, kModelHelp, {.type = "MODEL"})
      .Add("out", &F::out,
           "written: a line of JSON per row with `prediction` (a label or a text), `probabilities` "
           "of the labels, and `label` where the data have one; -: standard output",
           {.type = "FILE"})
      .Include<F, ComputeFlags>();
  command->footer(
      "Labels may be missing; where they are not, the loss and the metrics are printed.\n"
      "Example:\n"
      "  tessera predict --model runs/mrpc/model --data test.tsv --out predictions.jsonl");
  auto fields = std::make_shared<FieldFlags>();
  RunWith<F>(command, state, std::move(table),
             {.by_place = {"model"}, .required = {"model", "out"}},
             [fields, &state](const CLI::App& given, const F& flags) {
               return RunPredict(given, flags, *fields, &state.names);
             });
  fields->AddEvaluation(command);
}

}  // namespace tessera::tools
