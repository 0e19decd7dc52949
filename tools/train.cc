// `tessera train`: trains a model and writes it as a Hugging Face folder.
#include <algorithm>
#include <cstdio>
#include <string>

#include "core/file.h"
#include "dist/comm/world.h"
#include "dist/mesh/mesh.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/field_flags.h"
#include "tools/parallel_command.h"
#include "train/agreement.h"
#include "train/config/deepspeed_config.h"
#include "train/run_setup.h"
#include "train/stop_signal.h"
#include "train/trainer.h"

namespace tessera::tools {
namespace {

struct TrainFlags {
  std::string model;
  std::string config;
  std::string deepspeed;
  std::string resume;
  FieldFlags fields;
};

// A DeepSpeed file, as keys of a run. It counts data-parallel ranks: it is read once tp and pp are
// known.
StatusOr<nlohmann::json> ReadDeepSpeedFile(const std::string& path, int world_size,
                                           const train::RunConfig& config) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false, true);
  if (json.is_discarded()) return InvalidArgument(path, ": not valid JSON");
  const int64_t model_ranks = std::max<int64_t>(1, config.tp * config.pp);
  return train::TranslateDeepSpeedConfig(
      json, path, static_cast<int>(std::max<int64_t>(1, world_size / model_ranks)));
}

// The DeepSpeed file's keys, and again the flags, which win.
Status ApplyDeepSpeedFile(const CLI::App& command, const TrainFlags& flags, int world_size,
                          train::RunConfig* config) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json keys,
                           ReadDeepSpeedFile(flags.deepspeed, world_size, *config));
  TESSERA_RETURN_IF_ERROR(train::ApplyRunConfigJson(keys, flags.deepspeed, config));
  TESSERA_RETURN_IF_ERROR(flags.fields.ApplyTo(command, config));
  // What such a file says of something that the run does not have (a section that is switched off,
  // another optimizer than the flags') means nothing with DeepSpeed either.
  for (const auto& [key, value] : keys.items()) {
    if (!flags.fields.Gives(command, key) && !config->Applies(key).ok()) config->Unset(key);
  }
  return OkStatus();
}

// Defaults, then the files, then the flags.
StatusOr<train::RunConfig> Configure(const CLI::App& command, const TrainFlags& flags,
                                     int world_size) {
  train::RunConfig config;
  if (!flags.config.empty()) {
    TESSERA_RETURN_IF_ERROR(train::ReadRunConfig(flags.config, &config));
  }
  TESSERA_RETURN_IF_ERROR(flags.fields.ApplyTo(command, &config));
  if (!flags.deepspeed.empty()) {
    TESSERA_RETURN_IF_ERROR(ApplyDeepSpeedFile(command, flags, world_size, &config));
  }
  if (!flags.model.empty()) config.model = flags.model;
  if (config.model.empty()) return InvalidArgument("a preset or a model folder is missing");
  if (config.data.empty()) return InvalidArgument("--data is missing");
  if (config.out.empty()) return InvalidArgument("--out is missing");
  TESSERA_RETURN_IF_ERROR(config.Validate());
  return config;
}

// "; 8 ranks: dp 2, pp 1, tp 4", nothing for one.
std::string Ranks(const dist::Mesh& mesh) {
  if (mesh.world()->size() == 1) return "";
  return Concat("; ", mesh.world()->size(), " ranks: dp ", mesh.dp()->size(), ", pp ",
                mesh.pp()->size(), ", tp ", mesh.tp()->size());
}

Status TrainOnRank(const train::RunConfig& config, const train::TrainOptions& options,
                   const dist::World& world) {
  TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, train::MakeMesh(config, world.communicator));
  const auto say = [&](const std::string& text) {
    return mesh.prints() ? WriteOut(text) : OkStatus();
  };
  TESSERA_ASSIGN_OR_RETURN(train::RunSetup setup, train::PrepareRun(config, mesh, world.device));
  if (!world.warning.empty()) setup.warnings.push_back(world.warning);
  TESSERA_RETURN_IF_ERROR(say(
      Concat("model ", config.model, ": ", WithThousands(setup.parameter_count), " parameters; ",
             setup.task->name, " on ", WithThousands(setup.data.train->size()), " training samples",
             setup.data.seq_len > 0 ? Concat(" of ", setup.data.seq_len, " tokens") : "",
             Ranks(mesh), "\n", setup.config.Describe())));
  for (const std::string& line : setup.warnings) {
    TESSERA_RETURN_IF_ERROR(say(Concat("warning: ", line, "\n")));
  }
  train::Trainer trainer(setup.config, *setup.model, setup.data, mesh);
  TESSERA_ASSIGN_OR_RETURN(const train::TrainResult result, trainer.Train(options));
  if (!result.stopped_by.empty()) {
    return say(Concat("stopped at step ", result.state.step, " of ", result.state.total_steps,
                      " by ", result.stopped_by, "; saved ",
                      dist::CheckpointPath(config.out, result.state.step),
                      "; the same command with --resume goes on\n"));
  }
  const std::string folder = JoinPath(config.out, "model");
  TESSERA_RETURN_IF_ERROR(trainer.SaveModel(folder, setup.tokenizer.get()));
  return say(Concat("trained ", result.state.step, " steps; the model is in ", folder, "\n"));
}

Status RunTrain(const CLI::App& command, const TrainFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const dist::LaunchEnvironment launch,
                           dist::ReadLaunchEnvironment(std::getenv));
  const StatusOr<train::RunConfig> config = Configure(command, flags, launch.size);
  const train::RunConfig known = config.ok() ? *config : train::RunConfig();
  TESSERA_ASSIGN_OR_RETURN(const dist::World world,
                           dist::OpenWorld({.device = known.device,
                                            .check_collectives = known.check_collectives,
                                            .collective_timeout = known.collective_timeout}));
  const train::StopSignals signals;  // from now on: one that comes while data are read counts too
  return RunOnRanks(world, [&]() -> Status {
    const dist::Mesh whole(world.communicator, {});
    TESSERA_RETURN_IF_ERROR(train::Agree(whole, config.status()));
    train::TrainOptions options;
    options.resume = command.count("--resume") > 0;
    options.resume_from = flags.resume;
    return TrainOnRank(*config, options, world);
  });
}

}  // namespace

void AddTrainCommand(CLI::App& app, CommandState& state) {
  CLI::App* command = app.add_subcommand("train", "train a preset or a folder's model on data");
  auto flags = std::make_shared<TrainFlags>();
  command->add_option("model", flags->model, "a preset (`tessera models`) or a model folder")
      ->type_name("MODEL");
  command->add_option("--config", flags->config, "JSON file with any of the keys below")
      ->type_name("FILE");
  command
      ->add_option("--deepspeed", flags->deepspeed,
                   "DeepSpeed's JSON configuration; flags win over it, and it over --config")
      ->type_name("FILE");
  command
      ->add_option("--resume", flags->resume,
                   "continue from the newest checkpoint in --out, or from the one named")
      ->expected(0, 1)
      ->type_name("[DIR]");
  for (const Option* key : train::RunConfigKeys()) {
    if (key->key != "model") flags->fields.Add(command, *key);
  }
  command->footer(
      "Example:\n"
      "  tessera train gpt-tiny --data book.txt --out runs/book --max-steps 500 --lr 1e-3\n"
      "SIGINT, SIGTERM, SIGUSR1 and --time-limit finish the step, save and exit with 0; the same\n"
      "command with --resume goes on, bit for bit as if it had not been stopped.");
  command->callback([command, flags, &state] {
    state.run = [command, flags] { return RunTrain(*command, *flags); };
  });
}

}  // namespace tessera::tools
