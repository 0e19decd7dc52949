#include "train/run_setup.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/file.h"
#include "core/nearest_name.h"
#include "core/thread_pool.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/tokenize.h"
#include "dist/comm/agreement.h"
#include "dist/pipeline/partition.h"
#include "dist/pipeline/pipelined_model.h"
#include "dist/store/zero_init.h"
#include "models/family.h"
#include "models/generation/special_tokens.h"
#include "models/hub/load_model.h"
#include "ops/kernel_choice.h"
#include "train/agreement.h"
#include "train/run_log.h"

namespace tessera::train {
namespace {

using nlohmann::json;

// --- What is to be built -------------------------------------------------------------------------

// A run on its way: the model is described before its data are read, and built after.
struct Plan {
  RunSetup setup;
  json model;  // the configuration, changes included
  const models::Family* family = nullptr;
  json changes;                          // what replaces keys of the preset's or the folder's own
  std::unique_ptr<models::Model> shape;  // on the meta device
  bool evaluation = false;
  std::string cache;

  void Change(const json& keys) {
    for (const auto& [key, value] : keys.items()) {
      changes[key] = value;
      model[key] = value;
      if (value.is_null()) model.erase(key);
    }
  }
};

// The tokenizer that the configuration names, or the model's own.
StatusOr<std::unique_ptr<data::Tokenizer>> FindTokenizer(const RunConfig& config,
                                                         const TaskKind& task,
                                                         const models::Preset* preset) {
  std::string spec = config.tokenizer;
  if (spec.empty() && preset != nullptr) spec = preset->tokenizer;
  if (spec.empty() && preset == nullptr) spec = config.model;
  const std::vector<DataSource> sources = config.Sources();
  const bool ready = std::all_of(sources.begin(), sources.end(), [](const DataSource& source) {
    return data::IndexedDatasetPrefix(source.path).has_value();
  });
  if (spec.empty() && ready) return nullptr;
  if (spec.empty()) {
    return InvalidArgument(
        "model '", config.model,
        "' comes without a tokenizer; give --tokenizer (a folder, byte or char)");
  }
  if (ready) return data::LoadTokenizer(spec);
  TokenizerText text = {.paths = {sources[0].path}};
  if (task.tokenizer_text != nullptr) text = task.tokenizer_text(config);
  return data::MakeTokenizer(spec, text.paths, {.json_key = text.json_key});
}

// Keys that mean something to some tasks only are refused where another task runs.
Status CheckTaskKeys(const TaskKind& task, const RunConfig& config) {
  TESSERA_RETURN_IF_ERROR(config.Validate());  // with the task known
  if (!task.needs_tokenizer && !config.tokenizer.empty()) {
    return InvalidArgument("tokenizer is set, but the task ", task.name, " has no text");
  }
  if (!task.needs_tokenizer && config.neftune_noise_alpha > 0) {
    return InvalidArgument("neftune_noise_alpha is set, but the task ", task.name,
                           " has no tokens");
  }
  return OkStatus();
}

Status CheckOverrides(const json& overrides, const json& model, const std::string& source) {
  std::vector<std::string> known;
  for (const auto& [key, value] : model.items()) known.push_back(key);
  for (const auto& [key, value] : overrides.items()) {
    if (model.contains(key)) continue;
    return InvalidArgument("config_overrides: the configuration of ", source, " has no key '", key,
                           "'", DidYouMean(key, known));
  }
  return OkStatus();
}

StatusOr<nn::BuildContext> ContextFor(const RunConfig& config, const dist::Mesh& mesh,
                                      const std::optional<Device>& device) {
  nn::BuildContext context;
  context.dtype = *ParseDType(config.dtype);
  TESSERA_ASSIGN_OR_RETURN(context.device, Device::Parse(config.device));
  if (device) context.device = *device;
  TESSERA_RETURN_IF_ERROR(CheckDeviceAvailable(context.device));
  context.seed = static_cast<uint64_t>(config.seed);
  context.tensor_parallel = mesh.tp();
  context.sequence_parallel = config.sequence_parallel && config.tp > 1;
  if (!config.grad_dtype.empty()) context.grad_dtype = ParseDType(config.grad_dtype);
  return context;
}

// The model's configuration, as the tokenizer and the flags change it, and its task.
Status Describe(Plan* plan) {
  RunConfig& config = plan->setup.config;
  const models::Preset* preset = models::FindPreset(config.model);
  if (preset == nullptr && !IsDirectory(config.model)) {
    return NotFound("'", config.model,
                    "' is neither a preset (`tessera models` lists them) nor a folder");
  }
  TESSERA_ASSIGN_OR_RETURN(plan->model, models::ReadModelConfig(config.model));
  plan->changes = json::object();
  const auto family = models::FamilyOf(plan->model);
  if (!family.ok()) return InvalidArgument(config.model, ": ", Message(family.status()));
  plan->family = *family;
  TESSERA_ASSIGN_OR_RETURN(plan->setup.task, FindTask(config, **family, plan->model));
  const TaskKind& task = *plan->setup.task;
  config.task = task.name;
  TESSERA_RETURN_IF_ERROR(CheckTaskKeys(task, config));
  if (task.needs_tokenizer) {
    TESSERA_ASSIGN_OR_RETURN(plan->setup.tokenizer, FindTokenizer(config, task, preset));
    if (plan->setup.tokenizer != nullptr && preset != nullptr) {
      plan->Change(models::VocabularyOf(*plan->setup.tokenizer, plan->model));
    }
    if (plan->setup.tokenizer != nullptr) {
      plan->Change(models::TokenIdsFromTokenizer(*plan->setup.tokenizer, plan->model));
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const json overrides, config.Overrides());
  TESSERA_RETURN_IF_ERROR(CheckOverrides(overrides, plan->model, config.model));
  plan->Change(overrides);
  const models::Architecture* const now = plan->family->ArchitectureOf(plan->model);
  if (!plan->evaluation && (now == nullptr || !now->Does(task.capability))) {
    plan->Change({{"architectures", {plan->family->With(task.capability)->name}}});
  }
  nn::BuildContext dry;
  dry.device = Device::Meta();
  dry.initialise = false;
  auto shape = models::BuildModel(plan->model, dry);
  if (!shape.ok()) return InvalidArgument(config.model, ": ", Message(shape.status()));
  plan->shape = *std::move(shape);
  const int64_t positions = plan->shape->max_positions();
  if (positions > 0 && config.seq_len.value_or(0) > positions) {
    return InvalidArgument("seq_len ", *config.seq_len, " is longer than the model's ", positions,
                           " positions");
  }
  const data::Tokenizer* tokenizer = plan->setup.tokenizer.get();
  if (tokenizer != nullptr && tokenizer->vocab_size() > plan->shape->vocab_size()) {
    return InvalidArgument("the tokenizer's ", tokenizer->vocab_size(),
                           " ids do not fit the model's vocabulary of ", plan->shape->vocab_size());
  }
  return OkStatus();
}

// All weights or none.
Status CheckSources(const std::vector<DataSource>& sources) {
  for (const DataSource& source : sources) {
    if (source.weight.has_value() == sources[0].weight.has_value()) continue;
    const DataSource& bare = source.weight ? sources[0] : source;
    return InvalidArgument("data: '", bare.path, "' has no weight, others have (a.txt:0.3)");
  }
  return OkStatus();
}

Status OpenTheData(Plan* plan) {
  RunSetup& setup = plan->setup;
  const std::vector<DataSource> sources = setup.config.Sources();
  TESSERA_RETURN_IF_ERROR(CheckSources(sources));
  TESSERA_ASSIGN_OR_RETURN(setup.data, setup.task->open({.config = setup.config,
                                                         .sources = sources,
                                                         .model = plan->model,
                                                         .family = *plan->family,
                                                         .shape = *plan->shape,
                                                         .tokenizer = setup.tokenizer.get(),
                                                         .cache = plan->cache,
                                                         .evaluation = plan->evaluation}));
  if (setup.data.seq_len > 0) setup.config.seq_len = setup.data.seq_len;
  return OkStatus();
}

StatusOr<std::unique_ptr<models::Model>> LoadBlocks(const nn::BuildContext& build,
                                                    const dist::Mesh& mesh, Plan* plan) {
  const RunConfig& config = plan->setup.config;
  models::LoadOptions load;
  load.build = build;
  load.require_weights = plan->evaluation;
  load.config_changes = plan->changes;
  load.ignore_mismatched_sizes = config.ignore_mismatched_sizes || plan->setup.data.replaces_head;
  load.warn = [&](const std::string& line) { plan->setup.warnings.push_back(line); };
  TESSERA_ASSIGN_OR_RETURN(const dist::ZeroOptions policy, config.zero_options());
  dist::CutWhileBuilding(policy, mesh.dp(), &load.build);
  TESSERA_ASSIGN_OR_RETURN(auto model, models::LoadModel(config.model, load));
  if (config.dropout) model->SetDropout(*config.dropout);
  model->set_checkpoint_activations(config.checkpoint_activations);
  return model;
}

// The blocks of each of this rank's chunks, cut so that all chunks cost about the same.
StatusOr<std::vector<std::unique_ptr<models::Model>>> LoadChunks(const nn::BuildContext& build,
                                                                 const dist::Mesh& mesh,
                                                                 Plan* plan) {
  const RunConfig& config = plan->setup.config;
  const dist::PipelineShape shape = config.pipeline_shape();
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<double> costs,
      dist::ComputedBlockCosts(dist::BlocksOf(plan->model, build), config.seq_len.value_or(0)));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int> cuts,
                           dist::CutBlocks(costs, shape.stages * shape.chunks_per_rank));
  std::vector<std::unique_ptr<models::Model>> chunks;
  for (int v = 0; v < shape.chunks_per_rank; ++v) {
    const auto chunk = static_cast<size_t>(v * shape.stages + mesh.pp()->rank());
    nn::BuildContext part = build;
    part.first_block = cuts[chunk];
    part.end_block = cuts[chunk + 1];
    TESSERA_ASSIGN_OR_RETURN(auto model, LoadBlocks(part, mesh, plan));
    chunks.push_back(std::move(model));
  }
  return chunks;
}

Status CountParameters(Plan* plan) {
  nn::BuildContext dry;
  dry.device = Device::Meta();
  dry.initialise = false;
  TESSERA_ASSIGN_OR_RETURN(const auto whole, models::BuildModel(plan->model, dry));
  plan->setup.parameter_count = whole->ParameterCount();
  return OkStatus();
}

// Collective over the mesh's world.
Status BuildTheModel(const nn::BuildContext& build, const dist::Mesh& mesh, Plan* plan) {
  plan->Change(plan->setup.data.model_changes);
  plan->shape.reset();
  TESSERA_RETURN_IF_ERROR(Agree(mesh, CountParameters(plan)));
  if (mesh.pp()->size() == 1) {
    auto model = LoadBlocks(build, mesh, plan);
    TESSERA_RETURN_IF_ERROR(Agree(mesh, model.status()));
    plan->setup.model = *std::move(model);
    return OkStatus();
  }
  auto chunks = LoadChunks(build, mesh, plan);
  TESSERA_RETURN_IF_ERROR(Agree(mesh, chunks.status()));
  plan->setup.model =
      std::make_unique<dist::PipelinedModel>(dist::Stage(*std::move(chunks), mesh.pp()));
  return OkStatus();
}

// --- Ranks ---------------------------------------------------------------------------------------

// The host's name and the processors this rank may use: ranks with the same share them.
std::string Place() {
  std::string place = HostName();
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return place;
  place += ' ';
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &cpus)) place += Concat(i, ",");
  }
  return place;
}

std::string HostOf(const std::string& place) { return place.substr(0, place.find(' ')); }

// Threads of this rank where none are asked for: its share of the processors.
int DefaultThreads(const std::vector<std::string>& places, int rank) {
  const auto sharing =
      static_cast<int>(std::count(places.begin(), places.end(), places[static_cast<size_t>(rank)]));
  return std::max(1, AvailableCores() / sharing);
}

bool LeadsItsHost(const std::vector<std::string>& places, int rank) {
  for (int r = 0; r < rank; ++r) {
    if (HostOf(places[static_cast<size_t>(r)]) == HostOf(places[static_cast<size_t>(rank)])) {
      return false;
    }
  }
  return true;
}

// "rank 3 has lr 0.001, rank 0 has 0.0003": the first key in which a rank differs from the most
// frequent configuration.
Status CompareConfigurations(const std::vector<std::string>& all) {
  size_t usual = 0;
  for (size_t r = 1; r < all.size(); ++r) {
    if (std::count(all.begin(), all.end(), all[r]) >
        std::count(all.begin(), all.end(), all[usual])) {
      usual = r;
    }
  }
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] == all[usual]) continue;
    const auto mine = nlohmann::json::parse(all[r], nullptr, false);
    const auto theirs = nlohmann::json::parse(all[usual], nullptr, false);
    for (const auto& [key, value] : theirs.items()) {
      if (!mine.contains(key) || mine[key] == value) continue;
      return InvalidArgument("rank ", r, " was started with another configuration: ", key, " is ",
                             mine[key].dump(), " there and ", value.dump(), " on rank ", usual);
    }
  }
  return OkStatus();
}

// The trained model goes to <out>/model: a run must not begin there.
Status CheckSource(const RunConfig& config) {
  std::error_code error;
  const std::filesystem::path source = std::filesystem::weakly_canonical(config.model, error);
  const std::filesystem::path goal =
      std::filesystem::weakly_canonical(JoinPath(config.out, "model"), error);
  if (!IsDirectory(config.model) || error || source != goal) return OkStatus();
  return InvalidArgument("out: ", goal.string(),
                         " is the model to begin with, and would be replaced by the trained one; "
                         "give another --out");
}

}  // namespace

StatusOr<dist::Mesh> MakeMesh(const RunConfig& config, const dist::Group& world) {
  const dist::Mesh whole(world, {});
  TESSERA_RETURN_IF_ERROR(Agree(whole, config.ValidateFor(world->size())));
  if (world->size() == 1) return whole;
  nlohmann::ordered_json json = config.ToJson();
  json.erase("threads");                                           // a rank's own
  if (config.device.starts_with("cuda")) json["device"] = "cuda";  // which one is, too
  TESSERA_RETURN_IF_ERROR(
      Agree(whole, CompareConfigurations(dist::GatherStrings(*world, json.dump()))));
  return dist::Mesh(world, {.tp = static_cast<int>(config.tp), .pp = static_cast<int>(config.pp)});
}

StatusOr<RunSetup> PrepareRun(const RunConfig& config, const dist::Mesh& mesh,
                              const std::optional<Device>& device) {
  SetKernelChoice({.alike = config.deterministic});
  Plan plan;
  plan.setup.config = config;
  plan.cache = JoinPath(config.out, "data");
  const int rank = mesh.world()->rank();
  const std::vector<std::string> places = dist::GatherStrings(*mesh.world(), Place());
  SetNumThreads(config.threads ? static_cast<int>(std::min<int64_t>(*config.threads, 1024))
                               : DefaultThreads(places, rank));
  Status status = config.Validate();
  if (status.ok()) status = CheckSource(config);
  // Before anything in the run's directory is touched.
  if (status.ok() && rank == 0) status = RunLock::Take(config.out, &plan.setup.lock);
  if (status.ok()) status = Describe(&plan);
  const StatusOr<nn::BuildContext> build =
      status.ok() ? ContextFor(config, mesh, device) : StatusOr<nn::BuildContext>(status);
  status.Update(build.status());
  TESSERA_RETURN_IF_ERROR(Agree(mesh, status));
  // The data are made by one rank, then by those of other hosts (which find them made where hosts
  // share the directory), and opened by all.
  for (int round = 0; round < 3; ++round) {
    const int mine = rank == 0 ? 0 : LeadsItsHost(places, rank) ? 1 : 2;
    TESSERA_RETURN_IF_ERROR(Agree(mesh, round == mine ? OpenTheData(&plan) : OkStatus()));
  }
  TESSERA_RETURN_IF_ERROR(BuildTheModel(*build, mesh, &plan));
  return std::move(plan.setup);
}

StatusOr<RunSetup> PrepareEvaluation(const RunConfig& config, const nn::BuildContext& build,
                                     const std::string& cache) {
  Plan plan;
  plan.setup.config = config;
  plan.cache = cache;
  plan.evaluation = true;
  TESSERA_RETURN_IF_ERROR(config.Validate());
  TESSERA_RETURN_IF_ERROR(Describe(&plan));
  TESSERA_RETURN_IF_ERROR(OpenTheData(&plan));
  TESSERA_RETURN_IF_ERROR(BuildTheModel(build, {}, &plan));
  return std::move(plan.setup);
}

}  // namespace tessera::train
