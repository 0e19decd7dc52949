// SPDX-License-Identifier: Apache-2.0
// `tessera plan`: what a run would take, without a run.
#include "train/plan/plan.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dist/comm/launch_environment.h"
#include "nlohmann/json.hpp"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/run_flags.h"
#include "tools/scratch_directory.h"
#include "tools/settings.h"
#include "train/plan/fit.h"
#include "train/plan/machine.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostRanks = 1 << 16;

struct PlanFlags {
  std::optional<int64_t> ranks;
  bool json = false;
  std::string machine;
  std::string fit;
};

// Layouts that fit, a line or an object each.
Status Fit(const train::RunConfig& config, const train::PlanOptions& options,
           const PlanFlags& flags, const std::optional<train::Machine>& machine) {
  const StatusOr<int64_t> bytes = train::ParseBytes(flags.fit);
  if (!bytes.ok()) return InvalidArgument("--fit: ", Message(bytes.status()));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<train::FittedLayout> layouts,
                           train::FindLayouts(config, options, *bytes, machine));
  if (layouts.empty()) {
    return InvalidArgument("--fit: no layout of ", options.ranks,
                           options.ranks == 1 ? " rank" : " ranks", " fits ", flags.fit);
  }
  nlohmann::ordered_json json = {{"layouts", nlohmann::ordered_json::array()}};
  std::string text;
  for (const train::FittedLayout& layout : layouts) {
    nlohmann::ordered_json entry = {{"flags", layout.Flags()},
                                    {"peak_bytes", layout.plan.peak_bytes()},
                                    {"host_bytes", layout.plan.host_bytes()}};
    text += Concat(layout.Flags(), "  # ", WithThousands(layout.plan.peak_bytes()), " bytes");
    // Of a pipeline, which this layout is not.
    for (const char* key : {"schedule", "num_model_chunks"}) {
      if (!config.IsSet(key) || layout.plan.config.IsSet(key)) continue;
      entry["without"].push_back(FlagName(key));
      text += Concat(", without ", FlagName(key));
    }
    if (layout.time) {
      entry["step"] = layout.time->ToJson();
      text += Concat(", ", layout.time->seconds, " s a step");
    }
    text += "\n";
    json["layouts"].push_back(std::move(entry));
  }
  return WriteOut(flags.json ? json.dump() + "\n" : text);
}

Status RunPlan(const CLI::App& command, const RunFlags& run_flags, const PlanFlags& flags,
               WrittenNames* names) {
  const auto asked = static_cast<int>(flags.ranks.value_or(1));
  TESSERA_ASSIGN_OR_RETURN(train::ResolvedRun run, run_flags.Resolve(command, asked, names));
  TESSERA_RETURN_IF_ERROR(run.status());
  if (run.config.model.empty()) return InvalidArgument("a preset or a model folder is missing");
  if (run.resume) return InvalidArgument("--resume: a plan is of a whole run, not of its rest");
  TESSERA_ASSIGN_OR_RETURN(const auto scratch, ScratchDirectory::Create());
  run.config.out = JoinPath(scratch->path(), "run");
  TESSERA_RETURN_IF_ERROR(run.config.Validate());
  const int ranks = flags.ranks ? asked : static_cast<int>(run.launch.ranks());
  const train::PlanOptions options = {.ranks = ranks, .cache = JoinPath(scratch->path(), "data")};
  std::optional<train::Machine> machine;
  if (!flags.machine.empty()) {
    TESSERA_ASSIGN_OR_RETURN(machine, train::ReadMachine(flags.machine));
  }
  if (!flags.fit.empty()) return Fit(run.config, options, flags, machine);
  TESSERA_ASSIGN_OR_RETURN(const train::Plan plan, train::MakePlan(run.config, options));
  nlohmann::ordered_json json = plan.ToJson();
  std::optional<int64_t> devices_per_node;
  if (machine) devices_per_node = machine->devices_per_node;
  std::string text = plan.Table(devices_per_node);
  if (machine) {
    const StatusOr<train::StepTime> time = train::TimeOf(plan, *machine);
    if (!time.ok()) {
      return Failure(time.status().code(), flags.machine, ": ", Message(time.status()));
    }
    json["step"] = time->ToJson();
    text += time->Text();
    if (machine->device_memory > 0) {
      const bool fits = plan.peak_bytes() <= machine->device_memory;
      json["fits"] = fits;
      text += fits ? "fits the device\n" : "does not fit the device\n";
    }
  }
  return WriteOut(flags.json ? json.dump() + "\n" : text);
}

}  // namespace

void AddPlanCommand(CLI::App& app, CommandState& state) {
  CLI::App* command =
      app.add_subcommand("plan", "Say what a run would take: memory, disk, communication");
  auto run = std::make_shared<RunFlags>();
  run->Add(command);
  using F = PlanFlags;
  OptionTable table = OptionTable::Of<F>("Options");
  table
      .Add("ranks", &F::ranks, "ranks of the run",
           {.least = 1, .most = kMostRanks, .unset = "those of the configuration, or 1"})
      .Add("json", &F::json, "print one JSON object")
      .Add("machine", &F::machine, "rates of a machine (JSON): adds the step's time",
           {.type = "FILE"})
      .Add("fit", &F::fit, "list the layouts whose peak fits a device's memory", {.type = "SIZE"});
  command->footer(
      "Takes the flags of `tessera train`. Nothing is trained, written or allocated; --data and\n"
      "--out may be missing.\n"
      "Examples:\n"
      "  tessera plan gpt2 --data book.txt --batch-size 8\n"
      "  tessera plan llama-3.2-1b --seq-len 8192 --ranks 8 --tp 2 --zero 1 --device cuda");
  RunWith<F>(command, state, std::move(table), {},
             [run, &state](const CLI::App& plan, const F& flags) {
               return RunPlan(plan, *run, flags, &state.names);
             });
}

}  // namespace tessera::tools
