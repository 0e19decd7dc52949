// SPDX-License-Identifier: Apache-2.0
// `tessera train`: trains a model and writes it as a Hugging Face folder.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/comm/world.h"
#include "dist/mesh/mesh.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/launch.h"
#include "tools/program.h"
#include "tools/run_flags.h"
#include "tools/scratch_directory.h"
#include "train/plan/memory_check.h"
#include "train/ranks/agreement.h"
#include "train/ranks/run_on_ranks.h"
#include "train/ranks/stop_signal.h"
#include "train/run/elastic_run.h"
#include "train/run/run_setup.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

// The run that the files and flags describe. They are written for the ranks that an elastic run
// has at most.
StatusOr<train::ResolvedRun> Configure(const CLI::App& command, const RunFlags& flags,
                                       int world_size,
                                       const std::optional<train::ElasticRun>& elastic,
                                       WrittenNames* names) {
  const int ranks = elastic ? elastic->ranks : world_size;
  TESSERA_ASSIGN_OR_RETURN(train::ResolvedRun run, flags.Resolve(command, ranks, names));
  TESSERA_RETURN_IF_ERROR(run.status());
  if (elastic) {
    const auto layout = train::LayoutOn(run.config, ranks, world_size);
    if (!layout) return InvalidArgument("the run has no layout on ", world_size, " ranks");
    run.config = *layout;
  }
  const train::RunConfig& config = run.config;
  if (config.model.empty()) return InvalidArgument("a preset or a model folder is missing");
  for (const char* end : {".yaml", ".yml", ".toml", ".py", ".json"}) {
    if (!config.model.ends_with(end)) continue;
    return InvalidArgument("'", config.model,
                           "' is no preset or model folder; give a file of keys ", "by --config");
  }
  if (config.data.empty()) {
    return InvalidArgument("--data is missing: a file of this machine (also --train_file); ",
                           "nothing is downloaded");
  }
  if (config.out.empty()) return InvalidArgument("--out is missing");
  TESSERA_RETURN_IF_ERROR(config.Validate());
  return run;
}

// "; 8 ranks over MPI: dp 2, pp 1, tp 4", nothing for one; "dp 4 (cp 2, ep 2)" where dp is divided.
std::string Ranks(const dist::World& world, const dist::Mesh& mesh) {
  if (world.size == 1) return "";
  std::string parts;
  for (const auto& [name, group] : {std::pair("cp", mesh.cp()), std::pair("ep", mesh.ep())}) {
    if (group->size() == 1) continue;
    parts += Concat(parts.empty() ? "" : ", ", name, " ", group->size());
  }
  return Concat("; ", world.size, " ranks over ", world.transport, ": dp ", mesh.dp()->size(),
                parts.empty() ? "" : Concat(" (", parts, ")"), ", pp ", mesh.pp()->size(), ", tp ",
                mesh.tp()->size());
}

// "3,200 training samples".
std::string Samples(const data::Dataset& train) {
  if (train.size() == data::kUnknownSize) return "training samples of a stream";
  return WithThousands(train.size()) + " training samples";
}

Status TrainOnRank(const train::RunConfig& config, const std::vector<std::string>& notes,
                   const train::TrainOptions& options, const dist::World& world,
                   const Program& program) {
  TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, train::MakeMesh(config, world.communicator));
  const train::RunLog log = train::OpenRunLog(config, mesh, stdout, options.host);
  // A run outlives the reader of its output, here as in its steps (train/report/progress.h).
  const auto say = [&](train::LogLevel level, const std::string& text) {
    if (!log.Says(level)) return OkStatus();
    Status written = WriteOut(log.prefix() + text);
    return written.code() == StatusCode::kCancelled ? OkStatus() : written;
  };
  constexpr train::LogLevel kInfo = train::LogLevel::kInfo;
  const auto check = [&](const train::OpenedRun& run) -> Status {
    const ScratchDirectory scratch(JoinPath(config.out, ".plan"));
    TESSERA_ASSIGN_OR_RETURN(const std::string line,
                             train::CheckMemory(run, {.ranks = world.size,
                                                      .local_ranks = world.local_size,
                                                      .device = world.device,
                                                      .scratch = scratch.path()}));
    return say(kInfo, line + "\n");
  };
  TESSERA_ASSIGN_OR_RETURN(train::RunSetup setup,
                           train::PrepareRun(config, mesh, world.device,
                                             config.check_memory ? check : train::BeforeModel()));
  if (!world.warning.empty()) setup.warnings.push_back(world.warning);
  train::TrainerParts parts;
  if (program.parts_of_run != nullptr) {
    StatusOr<train::TrainerParts> made = program.parts_of_run(setup.config, &setup);
    TESSERA_RETURN_IF_ERROR(train::Agree(mesh, made.status()));
    parts = *std::move(made);
  }
  TESSERA_RETURN_IF_ERROR(
      say(kInfo, Concat("model ", config.model, ": ", WithThousands(setup.parameter_count),
                        " parameters; ", setup.task->name, " on ", Samples(*setup.data.train),
                        setup.data.seq_len > 0 ? Concat(" of ", setup.data.seq_len, " tokens") : "",
                        Ranks(world, mesh), "\n", setup.config.Describe())));
  for (const std::string& line : notes) TESSERA_RETURN_IF_ERROR(say(kInfo, line + "\n"));
  for (const std::string& line : train::WarningsToSay(setup.warnings, mesh)) {
    TESSERA_RETURN_IF_ERROR(say(train::LogLevel::kWarning, Concat("warning: ", line, "\n")));
  }
  train::Trainer trainer(setup.config, *setup.model, setup.data, mesh, std::move(parts));
  train::TrainOptions with_texts = options;
  with_texts.tokenizer = setup.tokenizer.get();
  TESSERA_ASSIGN_OR_RETURN(const train::TrainResult result, trainer.Train(with_texts));
  if (!result.stopped_by.empty()) {
    return say(kInfo, Concat("stopped at step ", result.state.step, " of ",
                             result.state.total_steps, " by ", result.stopped_by, "; saved ",
                             dist::CheckpointPath(config.out, result.state.step),
                             "; the same command with --resume continues it\n"));
  }
  const std::string folder = JoinPath(config.out, "model");
  TESSERA_RETURN_IF_ERROR(trainer.SaveModel(folder, setup.tokenizer.get()));
  return say(kInfo, Concat("trained ", result.state.step, " steps",
                           result.ended_by.empty() ? "" : " (" + result.ended_by + ")",
                           "; the model is in ", folder, "\n"));
}

// Becomes the ranks that the configuration asks for.
Status StartRanksOf(const train::RunLaunch& launch, const std::vector<std::string>& arguments) {
  LaunchFlags flags;
  flags.num_nodes = launch.num_nodes;
  flags.num_gpus = launch.num_gpus;
  flags.hostfile = launch.hostfile;
  if (launch.num_nodes == 1 && !PathExists(launch.hostfile)) {
    flags.hostfile.clear();  // one node needs none
    flags.num_nodes = 0;
  }
  flags.command = arguments;
  return StartRanks(flags);
}

Status RunTrain(const CLI::App& command, const RunFlags& flags, CommandState& state) {
  const Program& program = *state.program;
  TESSERA_ASSIGN_OR_RETURN(const dist::LaunchEnvironment launch,
                           dist::ReadLaunchEnvironment(std::getenv));
  TESSERA_ASSIGN_OR_RETURN(const std::optional<train::ElasticRun> elastic,
                           train::ElasticRun::Of(std::getenv(train::ElasticRun::kVariable)));
  StatusOr<train::ResolvedRun> run = Configure(command, flags, launch.size, elastic, &state.names);
  if (run.ok() && !elastic && run->launch.ranks() > 1 && run->launch.ranks() != launch.size) {
    if (launch.started_by == dist::StartedBy::kAlone && !run->launch.not_call_launch) {
      return StartRanksOf(run->launch, state.arguments);
    }
    run->notes.push_back(Concat("ranks: ", launch.size, ", by ",
                                dist::StartedByName(launch.started_by), "; num_gpus and num_nodes ",
                                "say ", run->launch.ranks()));
  }
  const train::RunConfig known = run.ok() ? run->config : train::RunConfig();
  TESSERA_ASSIGN_OR_RETURN(const dist::World world,
                           dist::OpenWorld({.device = known.device,
                                            .check_collectives = known.check_collectives,
                                            .collective_timeout = known.collective_timeout}));
  const train::StopSignals signals;  // from now on: one that comes while data are read counts too
  return train::RunOnRanks(world, [&]() -> Status {
    const dist::Mesh whole(world.communicator, {});
    TESSERA_RETURN_IF_ERROR(train::Agree(whole, state.names.In(run.status())));
    train::TrainOptions options;
    options.resume = run->resume.has_value();
    options.resume_from = run->resume.value_or("");
    options.elastic = elastic;
    const Status trained = TrainOnRank(run->config, run->notes, options, world, program);
    return train::AgreedLike(trained, state.names.In(trained));
  });
}

}  // namespace

void AddTrainCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("train", "Train a preset or a folder's model on data");
  auto flags = std::make_shared<RunFlags>();
  flags->Add(command);
  command->footer(
      "Example:\n"
      "  tessera train gpt-tiny --data book.txt --out runs/book --max-steps 500 --lr 1e-3\n"
      "SIGINT, SIGTERM, SIGHUP, SIGUSR1 and --time-limit finish the step, save and exit with 0;\n"
      "the same command with --resume continues it, bit for bit as if it had not been stopped.");
  command->callback([command, flags, &state] {
    state.run = [command, flags, &state] { return RunTrain(*command, *flags, state); };
  });
}

}  // namespace tessera::tools
