// SPDX-License-Identifier: Apache-2.0
// `tessera replay`: takes a step again whose numbers were not finite, on one process.
#include <filesystem>
#include <string>

#include "base/file.h"
#include "nlohmann/json.hpp"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/settings.h"
#include "train/foreign/run_keys.h"
#include "train/run/bad_step.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::json;

struct ReplayFlags {
  std::string file;
  std::string device = "cpu";
};

// What makes another layout of the same step.
void PutOnOneProcess(const Json& bad, train::RunConfig* config) {
  static_cast<train::ParallelConfig&>(*config) = {};
  static_cast<train::ZeroConfig&>(*config) = {};
  config->gradient_accumulation_steps *= bad.value("data_ranks", int64_t{1});
}

Status RunReplay(const ReplayFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.file));
  const Json bad = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!bad.is_object() || !bad.contains("operation") || !bad.contains("step")) {
    return InvalidArgument(flags.file, ": is no bad_step.json of a run");
  }
  const std::string out = std::filesystem::path(flags.file).parent_path().string();
  train::RunConfig config;
  TESSERA_RETURN_IF_ERROR(train::ReadRunConfig(JoinPath(out, "config.json"), &config));
  config.out = out.empty() ? "." : out;
  config.device = flags.device;
  PutOnOneProcess(bad, &config);
  TESSERA_ASSIGN_OR_RETURN(const train::RunSetup setup, train::PrepareRun(config));
  train::Trainer trainer(setup.config, *setup.model, setup.data);
  TESSERA_ASSIGN_OR_RETURN(const std::optional<train::BadStep> found, trainer.Replay());
  if (!found) {
    return Internal(flags.file, ": step ", bad["step"].get<int64_t>(),
                    " gives finite numbers when it is run again here");
  }
  TESSERA_RETURN_IF_ERROR(
      WriteOut(Concat("step ", bad["step"].get<int64_t>(), ": ", found->Text({}), "\n")));
  const nlohmann::ordered_json now = found->ToJson();
  for (const char* key : {"micro_batch", "pass", "module", "operation", "what", "index"}) {
    if (now[key] == bad.value(key, Json())) continue;
    return Internal(flags.file, ": the run began to go wrong elsewhere: its ", key, " is ",
                    bad.value(key, Json()).dump());
  }
  return WriteOut("as in the run\n");
}

}  // namespace

void AddReplayCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("replay", "take a step again whose numbers were not finite");
  using F = ReplayFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table.Add("file", &F::file, "`bad_step.json` of a run's folder", {.type = "FILE"})
      .Add("device", &F::device, "where it is run: `cpu` or `cuda`");
  command->footer("Example:\n  tessera replay runs/book/bad_step.json");
  RunWith<F>(command, state, std::move(table), {.by_place = {"file"}, .required = {"file"}},
             [](const CLI::App&, const F& flags) { return RunReplay(flags); });
}

}  // namespace tessera::tools
