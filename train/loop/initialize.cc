// SPDX-License-Identifier: Apache-2.0
#include "train/loop/initialize.h"

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "base/options.h"
#include "dist/comm/launch_environment.h"
#include "dist/comm/world.h"
#include "dist/pipeline/pipelined_model.h"
#include "models/family.h"
#include "models/hub/load_model.h"
#include "nlohmann/json.hpp"
#include "optim/schedule.h"
#include "train/engine/engine_options.h"
#include "train/ranks/agreement.h"
#include "train/ranks/rank_place.h"
#include "train/run/run_adapter.h"
#include "train/run/run_setup.h"

namespace tessera::train {
namespace {

using nlohmann::json;

// --- What means something to an engine -----------------------------------------------------------

// Why a key does not; "" where it does.
std::string WhyNothing(const Option& option) {
  if (RunConfig::Table().Find(option.key) == nullptr) {
    for (const OptionPart& part : OptionParts()) {
      if (part.key == "optimizer" && part.table->Find(option.key) != nullptr) return "";
    }
    return "tasks are a run's";
  }
  static const std::set<std::string> of_a_run = {"out", "epochs", "time_limit", "overwrite"};
  if (option.section == DataConfig::Table().title()) return "it is given its batches";
  if (of_a_run.count(option.key) > 0) return "the loop is the caller's";
  if (option.key == "schedule_by_epoch") return "it does not know what an epoch is";
  if (option.section == ReportConfig::Table().title() && option.key != "wall_clock_breakdown") {
    return "it reports and keeps what its caller asks for";
  }
  return "";
}

// The configuration without what means nothing to an engine. `foreign` tells of a key under what
// name another system's file gave it: those are warned of.
StatusOr<RunConfig> WithoutARun(RunConfig config, const std::map<std::string, std::string>& foreign,
                                std::vector<std::string>* warnings) {
  for (const Option* option : RunConfigKeys()) {
    const std::string why = WhyNothing(*option);
    if (why.empty() || !config.IsSet(option->key) || option->IsNeutral(config.Get(option->key))) {
      continue;
    }
    const auto given = foreign.find(option->key);
    if (given == foreign.end()) {
      return InvalidArgument(option->key, " is set, which means nothing to an engine: ", why);
    }
    if (!given->second.empty()) {
      warnings->push_back(
          Concat("'", given->second, "' means nothing to an engine (", option->key, "): ", why));
    }
    config.Unset(option->key);
  }
  TESSERA_RETURN_IF_ERROR(config.Validate());
  return config;
}

// Of files and flags.
StatusOr<RunConfig> Resolve(RunSources sources, int world_size,
                            std::vector<std::string>* warnings) {
  sources.world_size = world_size;
  TESSERA_ASSIGN_OR_RETURN(const ResolvedRun run, ResolveRun(sources));
  TESSERA_RETURN_IF_ERROR(run.status());
  if (run.resume) {
    return InvalidArgument("resume is set, which means nothing to an engine: call LoadCheckpoint");
  }
  std::map<std::string, std::string> foreign;
  for (const KeyVerdict& verdict : run.verdicts) {
    if (verdict.fate != KeyFate::kTranslated) continue;
    for (const std::string& key : KeysOf(verdict.reason)) foreign[key] = verdict.key;
  }
  for (const KeyVerdict& verdict : run.verdicts) {
    if (verdict.fate == KeyFate::kHonoured) foreign.erase(verdict.key);
    if (verdict.fate == KeyFate::kDefault) foreign[verdict.key] = "";  // nobody asked for it
  }
  return WithoutARun(run.config, foreign, warnings);
}

// The caller's, beside which the configuration has none; or the configuration's.
StatusOr<std::function<double(int64_t)>> LearningRateOf(
    const RunConfig& config, const std::function<double(int64_t)>& callers) {
  if (callers != nullptr) {
    for (const char* key : {"lr_schedule", "warmup_steps", "warmup_type", "warmup_min_lr", "min_lr",
                            "schedule_steps", "schedule_offset", "schedule_counting", "lr_cycles",
                            "lr_power", "lr_timescale", "lr_decay_steps", "lr_decay_type"}) {
      const bool none = key == std::string("lr_schedule") && config.lr_schedule == "constant";
      if (none || !config.IsSet(key)) continue;
      return InvalidArgument(key, " is set, but the caller gives the learning rate");
    }
    return callers;
  }
  const bool ends = config.lr_schedule != "constant" && config.lr_schedule != "inverse_sqrt";
  const bool share = config.warmup_steps > 0 && config.warmup_steps < 1;
  if (!config.max_steps && (share || (ends && !config.schedule_steps))) {
    return InvalidArgument(share ? Concat("warmup_steps ", config.warmup_steps)
                                 : Concat("lr_schedule ", config.lr_schedule),
                           " needs max_steps", share ? "" : " or schedule_steps",
                           ": an engine does not know how many steps its caller will take");
  }
  TESSERA_ASSIGN_OR_RETURN(const optim::Schedule schedule,
                           optim::MakeSchedule(config.schedule_of(config.max_steps.value_or(1))));
  return [schedule](int64_t step) { return schedule.At(step); };
}

// --- The model -----------------------------------------------------------------------------------

Status CheckBuiltModel(const models::Model& model, const dist::Stage* stage,
                       const RunConfig& config) {
  for (const char* key : {"model", "config_overrides", "ignore_mismatched_sizes"}) {
    if (config.IsSet(key)) return InvalidArgument(key, " is set, but the model is built already");
  }
  const nn::BuildContext& build = model.build();
  const auto differs = [](const std::string& key, const auto& wanted, const auto& built) {
    return InvalidArgument("the model was built with ", key, " ", built,
                           ", the configuration says ", wanted);
  };
  const int tp = build.tensor_parallel == nullptr ? 1 : build.tensor_parallel->size();
  const int pp = stage == nullptr ? 1 : stage->stages();
  const int ep = build.expert_parallel == nullptr ? 1 : build.expert_parallel->size();
  if (tp != config.tp) return differs("tp", config.tp, tp);
  if (pp != config.pp) return differs("pp", config.pp, pp);
  if (ep != config.ep) return differs("ep", config.ep, ep);
  if (ep > 1 && config.deterministic && !build.deterministic) {
    return InvalidArgument("the model was built without deterministic, which deterministic ",
                           "needs with ep ", ep);
  }
  const DType dtype = *ParseDType(config.dtype);
  if (dtype != build.dtype) return differs("dtype", dtype, build.dtype);
  const bool splits = config.sequence_parallel && config.tp > 1;
  if (splits != build.sequence_parallel) {
    return differs("sequence_parallel", splits, build.sequence_parallel);
  }
  // Gradients have the dtype of their parameters, those of halves may have another (nn::Module).
  const DType built_grad = IsHalf(dtype) ? build.grad_dtype.value_or(DType::kFloat32) : dtype;
  if (!config.grad_dtype.empty() && ParseDType(config.grad_dtype) != built_grad) {
    return differs("grad_dtype", config.grad_dtype, built_grad);
  }
  TESSERA_ASSIGN_OR_RETURN(const Device device, Device::Parse(config.device));
  if (device.is_cpu() != build.device.is_cpu()) return differs("device", device, build.device);
  return OkStatus();
}

// A preset or a folder, as the configuration changes it.
StatusOr<ModelBuilder> BuilderOf(const std::string& name, const RunConfig& config,
                                 std::vector<std::string>* warnings) {
  if (!config.model.empty() && config.model != name) {
    return InvalidArgument("model is '", config.model, "', but '", name, "' is to be initialized");
  }
  TESSERA_ASSIGN_OR_RETURN(const json model, models::ReadModelConfig(name));
  TESSERA_ASSIGN_OR_RETURN(const json overrides, OverridesOf(config, model, name));
  return [name, overrides, warnings, ignore = config.ignore_mismatched_sizes](
             const nn::BuildContext& part) -> StatusOr<std::unique_ptr<models::Model>> {
    models::LoadOptions load = {
        .build = part, .config_changes = overrides, .ignore_mismatched_sizes = ignore};
    if (!part.device.is_meta()) {
      load.warn = [warnings](const std::string& line) { warnings->push_back(line); };
    }
    return models::LoadModel(name, load);
  };
}

// Blocks by themselves, for the cut into stages.
dist::BlockBuilder ShapesOf(const ModelBuilder& builder, const nn::BuildContext& build) {
  return [builder, build](int first, int end, Device device) {
    nn::BuildContext part = build;
    part.first_block = first;
    part.end_block = end;
    part.device = device;
    part.initialise = false;
    return builder(part);
  };
}

// With the adapter that the configuration asks for beside what is built.
ModelBuilder WithAdapter(ModelBuilder builder, const RunConfig& config) {
  if (config.adapter.empty()) return builder;
  return [builder = std::move(builder),
          config](const nn::BuildContext& build) -> StatusOr<std::unique_ptr<models::Model>> {
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model, builder(build));
    TESSERA_ASSIGN_OR_RETURN(const models::AdapterConfig adapter,
                             AdapterOf(config, *model, /*new_head=*/false));
    TESSERA_RETURN_IF_ERROR(TrainAdapter(config, adapter, *model));
    return model;
  };
}

Status ProvideModel(const ModelSource& source, const std::optional<Device>& device,
                    ConfiguredEngineSetup* setup) {
  const RunConfig& config = setup->config;
  if (models::Model* built = source.built()) {
    setup->model = built;
    Status fits = CheckBuiltModel(*built, built->stage(), config);
    if (!config.adapter.empty()) {
      fits.Update(InvalidArgument(
          "adapter is set, but the program has built the model; models::AttachAdapter and "
          "TrainOnly make one beside it"));
    }
    if (config.checkpoint_activations) fits.Update(built->CheckCanRecompute("the model"));
    TESSERA_RETURN_IF_ERROR(Agree(setup->mesh, fits));
    if (config.dropout) built->SetDropout(*config.dropout);
    if (config.IsSet("checkpoint_activations")) {
      built->set_checkpoint_activations(config.checkpoint_activations);
    }
    return OkStatus();
  }
  StatusOr<ModelBuilder> builder = ModelBuilder();
  if (source.name() != nullptr) {
    builder = BuilderOf(*source.name(), config, &setup->warnings);
  } else {
    builder = *source.builder();
    for (const char* key : {"model", "config_overrides", "ignore_mismatched_sizes"}) {
      if (config.IsSet(key)) {
        builder = InvalidArgument(key, " is set, but a function builds the model");
      }
    }
  }
  const StatusOr<nn::BuildContext> build = BuildContextOf(config, setup->mesh, device);
  Status status = builder.status();
  status.Update(build.status());
  TESSERA_RETURN_IF_ERROR(Agree(setup->mesh, status));
  const ModelBuilder adapted = WithAdapter(*builder, config);
  TESSERA_ASSIGN_OR_RETURN(setup->owned, BuildRankModel(config, setup->mesh, *build,
                                                        ShapesOf(*builder, *build), adapted));
  setup->model = setup->owned.get();
  return OkStatus();
}

// --- The ranks -----------------------------------------------------------------------------------

Status CheckMeshFits(const RunConfig& config, const dist::Mesh& mesh) {
  TESSERA_RETURN_IF_ERROR(config.ValidateFor(mesh.world()->size()));
  if (config.cp > 1 || mesh.cp()->size() > 1) {
    return InvalidArgument("cp: a loop of one's own reads the losses and logits of whole rows; ",
                           "`tessera train` and train::Trainer share out the tokens of rows");
  }
  if (config.tp != mesh.tp()->size() || config.pp != mesh.pp()->size()) {
    return InvalidArgument("the mesh has tp ", mesh.tp()->size(), " and pp ", mesh.pp()->size(),
                           ", the configuration says ", config.tp, " and ", config.pp);
  }
  if (config.ep == mesh.ep()->size()) return OkStatus();
  return InvalidArgument("the mesh has ep ", mesh.ep()->size(), ", the configuration says ",
                         config.ep);
}

struct Ranks {
  dist::Mesh mesh;
  std::optional<Device> device;
};

// Collective; `config` may have failed on this rank alone.
StatusOr<Ranks> RanksOf(const StatusOr<RunConfig>& config, const InitializeOptions& options,
                        std::vector<std::string>* warnings) {
  if (options.mesh || options.world != nullptr) {
    for (const char* key : {"check_collectives", "collective_timeout"}) {
      if (!config.ok() || !config->IsSet(key)) continue;
      warnings->push_back(Concat("'", key, "' has no effect: the caller opened the ranks' world"));
    }
  }
  if (options.mesh) {
    Status status = config.status();
    if (status.ok()) status = CheckMeshFits(*config, *options.mesh);
    TESSERA_RETURN_IF_ERROR(Agree(*options.mesh, status));
    return Ranks{*options.mesh, options.device};
  }
  if (options.world != nullptr) {
    TESSERA_RETURN_IF_ERROR(Agree(dist::Mesh(options.world, {}), config.status()));
    TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, MakeMesh(*config, options.world));
    return Ranks{mesh, options.device};
  }
  const RunConfig known = config.ok() ? *config : RunConfig();
  TESSERA_ASSIGN_OR_RETURN(const dist::World world,
                           dist::OpenWorld({.device = known.device,
                                            .check_collectives = known.check_collectives,
                                            .collective_timeout = known.collective_timeout}));
  TESSERA_RETURN_IF_ERROR(Agree(dist::Mesh(world.communicator, {}), config.status()));
  if (!world.warning.empty()) warnings->push_back(world.warning);
  TESSERA_ASSIGN_OR_RETURN(const dist::Mesh mesh, MakeMesh(*config, world.communicator));
  return Ranks{mesh, options.device ? options.device : world.device};
}

StatusOr<std::unique_ptr<ConfiguredEngine>> InitializeWith(const ModelSource& model,
                                                           const StatusOr<RunConfig>& config,
                                                           const InitializeOptions& options,
                                                           std::vector<std::string> warnings) {
  TESSERA_ASSIGN_OR_RETURN(const Ranks ranks, RanksOf(config, options, &warnings));
  SetUpProcess(*config, FindRankPlace(*ranks.mesh.world()));
  ConfiguredEngineSetup setup = {.config = *config,
                                 .mesh = ranks.mesh,
                                 .owned = nullptr,
                                 .model = nullptr,
                                 .options = {},
                                 .criterion = options.criterion,
                                 .learning_rate = nullptr,
                                 .warnings = std::move(warnings)};
  const auto learning_rate = LearningRateOf(*config, options.learning_rate);
  TESSERA_RETURN_IF_ERROR(Agree(ranks.mesh, learning_rate.status()));
  setup.learning_rate = *learning_rate;
  TESSERA_RETURN_IF_ERROR(ProvideModel(model, ranks.device, &setup));
  TESSERA_ASSIGN_OR_RETURN(setup.options, EngineOptionsOf(*config, ranks.mesh));
  // Where a step would stop the loop, the parameters are as they were before it.
  setup.options.skip_non_finite = config->on_non_finite != "continue";
  return std::make_unique<ConfiguredEngine>(std::move(setup));
}

}  // namespace

StatusOr<std::unique_ptr<ConfiguredEngine>> Initialize(const ModelSource& model,
                                                       const RunSources& config,
                                                       const InitializeOptions& options) {
  int world_size = 1;
  const dist::Group world = options.mesh ? options.mesh->world() : options.world;
  if (world != nullptr) {
    world_size = world->size();
  } else {
    TESSERA_ASSIGN_OR_RETURN(const dist::LaunchEnvironment launch,
                             dist::ReadLaunchEnvironment(std::getenv));
    world_size = launch.size;
  }
  std::vector<std::string> warnings;
  const StatusOr<RunConfig> resolved = Resolve(config, world_size, &warnings);
  return InitializeWith(model, resolved, options, std::move(warnings));
}

StatusOr<std::unique_ptr<ConfiguredEngine>> Initialize(const ModelSource& model,
                                                       const RunConfig& config,
                                                       const InitializeOptions& options) {
  std::vector<std::string> warnings;
  const StatusOr<RunConfig> checked = WithoutARun(config, {}, &warnings);
  return InitializeWith(model, checked, options, std::move(warnings));
}

}  // namespace tessera::train
