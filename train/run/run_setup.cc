// SPDX-License-Identifier: Apache-2.0
#include "train/run/run_setup.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "base/output_files.h"
#include "base/utf8.h"
#include "data/dataset/data_folder.h"
#include "data/dataset/indexed_dataset.h"
#include "data/dataset/tokenize.h"
#include "dist/comm/agreement.h"
#include "dist/pipeline/partition.h"
#include "models/family.h"
#include "models/hub/load_model.h"
#include "models/hub/match_entries.h"
#include "models/hub/weight_files.h"
#include "models/open/describe_model.h"
#include "nlohmann/json.hpp"
#include "train/ranks/agreement.h"
#include "train/ranks/rank_model.h"
#include "train/ranks/rank_place.h"
#include "train/report/sampled_texts.h"
#include "train/run/run_adapter.h"

namespace tessera::train {
namespace {

using nlohmann::json;

// --- What is to be built -------------------------------------------------------------------------

// A run on its way: the model is described before its data are read, and built after.
struct Plan {
  RunSetup setup;
  models::DescribedModel base;
  const models::Family* family = nullptr;
  std::unique_ptr<models::Model> shape;  // on the meta device
  bool evaluation = false;
  bool prediction = false;
  std::optional<QuantType> quantize;
  std::string cache;
};

// The tokenizer that the configuration names, or the model's own; none where the data are tokens
// already and nothing names one.
Status FindTokenizer(const RunConfig& config, const TaskKind& task, models::DescribedModel* base) {
  const std::vector<DataSource> sources = config.Sources();
  const bool ready = std::all_of(sources.begin(), sources.end(), [](const DataSource& source) {
    return data::IndexedDatasetPrefix(source.path).has_value();
  });
  const bool named =
      !config.tokenizer.empty() || base->preset == nullptr || !base->preset->tokenizer.empty();
  if (!named && ready) return OkStatus();
  if (!named) {
    return InvalidArgument(
        "model '", config.model,
        "' comes without a tokenizer; give --tokenizer (a folder, byte or char)");
  }
  models::TokenizerChoice choice = {.spec = config.tokenizer};
  if (!ready) {
    choice.make = [&](const std::string& spec) {
      TokenizerText text = {.paths = {sources[0].path}};
      if (task.tokenizer_text != nullptr) text = task.tokenizer_text(config);
      return data::MakeTokenizer(spec, text.paths, {.json_key = text.json_key});
    };
  }
  return base->FindTokenizer(choice);
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

// `model_type` where the folder's configuration has none.
Status SetModelType(const RunConfig& config, models::DescribedModel* base) {
  if (config.model_type.empty()) return OkStatus();
  const json own = base->config->value("model_type", json());
  if (own.is_null()) {
    base->Change({{"model_type", config.model_type}});
  } else if (own != config.model_type) {
    return InvalidArgument("model_type is '", config.model_type, "', and ", config.model, " is '",
                           own.is_string() ? own.get<std::string>() : own.dump(), "'");
  }
  return OkStatus();
}

// The model without numbers, of the configuration as it is now.
Status DescribeShape(Plan* plan) {
  nn::BuildContext dry;
  dry.device = Device::Meta();
  dry.initialise = false;
  auto shape = models::BuildModel(plan->base.config, dry);
  if (!shape.ok()) return InvalidArgument(plan->setup.config.model, ": ", Message(shape.status()));
  plan->shape = *std::move(shape);
  return OkStatus();
}

// A model that is trained gets rows for the tokenizer's new words, as run_clm.py gives them. Others
// (Gemma 3 has one word fewer than its tokenizer) refuse the ids, where the data have any.
Status FitVocabulary(Plan* plan) {
  const data::Tokenizer* const tokenizer = plan->setup.tokenizer.get();
  const int64_t words = plan->shape->vocab_size();
  if (tokenizer == nullptr || tokenizer->vocab_size() <= words) return OkStatus();
  if (plan->evaluation || !plan->setup.config.adapter.empty()) return OkStatus();
  plan->base.Change({{"vocab_size", tokenizer->vocab_size()}});
  TESSERA_RETURN_IF_ERROR(DescribeShape(plan));
  if (plan->shape->vocab_size() < tokenizer->vocab_size()) {
    return InvalidArgument("the tokenizer's ", tokenizer->vocab_size(),
                           " ids do not fit the model's vocabulary of ", words,
                           "; give another --tokenizer");
  }
  plan->setup.warnings.push_back(Concat("the model's vocabulary grows from ", words,
                                        " words to the tokenizer's ", tokenizer->vocab_size(),
                                        "; those that are new begin as the mean of the others"));
  return OkStatus();
}

// The model's configuration, as the tokenizer and the flags change it, and its task.
Status Describe(Plan* plan) {
  RunConfig& config = plan->setup.config;
  if (models::FindPreset(config.model) == nullptr && !PathExists(config.model)) {
    return NotFound("'", config.model,
                    "' is neither a preset (`tessera models` lists them) nor a folder");
  }
  TESSERA_ASSIGN_OR_RETURN(plan->base, models::DescribeModel(config.model));
  TESSERA_RETURN_IF_ERROR(SetModelType(config, &plan->base));
  const auto family = models::FamilyOf(plan->base.config);
  if (!family.ok()) return InvalidArgument(config.model, ": ", Message(family.status()));
  plan->family = *family;
  TESSERA_ASSIGN_OR_RETURN(plan->setup.task,
                           FindTask(config, **family, plan->base.config, plan->prediction));
  const TaskKind& task = *plan->setup.task;
  config.task = task.name;
  TESSERA_RETURN_IF_ERROR(CheckTaskKeys(task, config));
  if (task.needs_tokenizer) {
    TESSERA_RETURN_IF_ERROR(FindTokenizer(config, task, &plan->base));
    plan->setup.tokenizer = std::move(plan->base.tokenizer);
  }
  TESSERA_ASSIGN_OR_RETURN(const json overrides,
                           OverridesOf(config, plan->base.config, config.model));
  plan->base.Change(overrides);
  const models::Architecture* const now = plan->family->ArchitectureOf(plan->base.config);
  if (!plan->evaluation && (now == nullptr || !now->Does(task.capability))) {
    plan->base.Change({{"architectures", {plan->family->With(task.capability)->name}}});
  }
  TESSERA_RETURN_IF_ERROR(DescribeShape(plan));
  TESSERA_RETURN_IF_ERROR(FitVocabulary(plan));
  TESSERA_RETURN_IF_ERROR(DescribePrefix(config, *plan->shape));
  const int64_t positions = plan->shape->positions_left();
  if (positions > 0 && config.seq_len.value_or(0) > positions) {
    return InvalidArgument("seq_len ", *config.seq_len, " is longer than the model's ", positions,
                           " positions");
  }
  return OkStatus();
}

// All weights or none.
Status CheckSources(const RunConfig& config, const std::vector<DataSource>& sources) {
  for (const DataSource& source : sources) {
    if (config.split.empty() || data::NamesSplit(source.path)) continue;
    return InvalidArgument("split is '", config.split, "', but data is no folder of a data set: ",
                           source.path.substr(0, source.path.rfind('[')));
  }
  if (!config.val_split.empty() && !data::NamesSplit(config.Validation())) {
    return InvalidArgument("val_split is '", config.val_split,
                           "', but there is no folder of a data set: ", config.Validation());
  }
  for (const DataSource& source : sources) {
    if (source.weight.has_value() == sources[0].weight.has_value()) continue;
    const DataSource& bare = source.weight ? sources[0] : source;
    return InvalidArgument("data: '", bare.path, "' has no weight, others have (a.txt:0.3)");
  }
  return OkStatus();
}

// What could not be read, by the key that names it, where that names nothing that is there.
Status OfMissingData(const RunConfig& config, const Status& failed) {
  const auto is_missing = [&](const std::string& path) {
    return Message(failed).find(path) != std::string::npos && !PathExists(path) &&
           !data::IndexedDatasetPrefix(path);
  };
  const auto of = [&](const char* key) {
    return Failure(failed.code(), key, ": ", Message(failed),
                   "; data are files of this machine, nothing is downloaded");
  };
  for (const DataSource& source : config.Sources()) {
    if (is_missing(source.path)) return of("data");
  }
  return !config.Validation().empty() && is_missing(config.Validation()) ? of("val_data") : failed;
}

// How the model's folder generates is how the trained model's does.
Status KeepGenerationConfig(Plan* plan) {
  constexpr char kName[] = "generation_config.json";
  const std::string& folder = plan->base.folder;
  const std::string path = JoinPath(folder, kName);
  if (plan->evaluation || !models::Generates(*plan->shape)) return OkStatus();
  if (!IsDirectory(folder) || !PathExists(path)) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const json generation, ReadJsonFile(path));
  if (!generation.is_object()) return InvalidArgument(path, ": not a JSON object");
  plan->setup.data.files.emplace_back(kName, generation.dump());
  return OkStatus();
}

Status OpenTheData(Plan* plan) {
  RunSetup& setup = plan->setup;
  const std::vector<DataSource> sources = setup.config.Sources();
  TESSERA_RETURN_IF_ERROR(CheckSources(setup.config, sources));
  StatusOr<TaskData> opened = setup.task->open({.config = setup.config,
                                                .sources = sources,
                                                .model = plan->base.config,
                                                .family = *plan->family,
                                                .shape = *plan->shape,
                                                .tokenizer = setup.tokenizer.get(),
                                                .cache = plan->cache,
                                                .evaluation = plan->evaluation,
                                                .prediction = plan->prediction});
  if (!opened.ok()) return OfMissingData(setup.config, opened.status());
  setup.data = *std::move(opened);
  setup.warnings.insert(setup.warnings.end(), setup.data.warnings.begin(),
                        setup.data.warnings.end());
  if (setup.data.seq_len > 0) setup.config.seq_len = setup.data.seq_len;
  const data::Dataset* const drawn = setup.data.train.get();
  if (setup.config.group_by_length && drawn != nullptr && !drawn->length_of(0)) {
    return InvalidArgument("group_by_length is set, but the samples of the task ",
                           setup.config.task, " have no lengths");
  }
  TESSERA_RETURN_IF_ERROR(KeepGenerationConfig(plan));
  if (setup.config.sample_prompts.empty()) return OkStatus();
  if (setup.data.validation == nullptr) {
    return InvalidArgument("sample_prompts needs validation data (val_data, val_fraction)");
  }
  if (setup.tokenizer == nullptr) {
    return InvalidArgument("sample_prompts need a tokenizer; give --tokenizer");
  }
  return ContinueAtEvaluations(setup.config.sample_prompts, setup.config.sample_tokens,
                               *setup.tokenizer, *plan->shape, plan->base.folder,
                               &setup.data.objective);
}

StatusOr<std::unique_ptr<models::Model>> LoadPart(const nn::BuildContext& build, Plan* plan) {
  const RunConfig& config = plan->setup.config;
  models::LoadOptions load;
  load.build = build;
  load.require_weights = plan->evaluation;
  // What is not trained need not be copied.
  load.map_weights = plan->evaluation || !config.adapter.empty();
  load.quantize = plan->quantize;
  load.config_changes = plan->base.changes;
  load.ignore_mismatched_sizes = config.ignore_mismatched_sizes || plan->setup.data.replaces_head;
  load.warn = [&](const std::string& line) { plan->setup.warnings.push_back(line); };
  if (plan->evaluation && !config.adapter.empty()) load.adapters = {config.adapter};
  TESSERA_ASSIGN_OR_RETURN(auto model, models::LoadModel(plan->base.folder, load));
  if (plan->evaluation) return model;
  if (config.adapter.empty()) {
    TESSERA_RETURN_IF_ERROR(models::CheckWeightsTrain(*model, config.model, "--adapter lora"));
    return model;
  }
  TESSERA_ASSIGN_OR_RETURN(const models::AdapterConfig adapter,
                           AdapterOf(config, *model, plan->setup.data.replaces_head));
  TESSERA_RETURN_IF_ERROR(TrainAdapter(config, adapter, *model));
  return model;
}

Status CountParameters(Plan* plan) {
  nn::BuildContext dry;
  dry.device = Device::Meta();
  dry.initialise = false;
  TESSERA_ASSIGN_OR_RETURN(const auto whole, models::BuildModel(plan->base.config, dry));
  plan->setup.parameter_count = whole->ParameterCount();
  return OkStatus();
}

// A head that the folder's weights have in another shape than the data ask for was trained, and is
// replaced where that is asked for. (What else does not fit is refused when it is loaded.)
Status CheckTrainedHead(const Plan& plan) {
  const RunSetup& setup = plan.setup;
  const std::string& folder = plan.base.folder;
  const bool keeps = setup.data.replaces_head && !setup.config.ignore_mismatched_sizes;
  if (!keeps || !IsDirectory(folder) || !models::WeightFiles::Exist(folder)) return OkStatus();
  nn::BuildContext dry;
  dry.device = Device::Meta();
  dry.initialise = false;
  TESSERA_ASSIGN_OR_RETURN(const auto model, models::BuildModel(plan.base.config, dry));
  TESSERA_ASSIGN_OR_RETURN(const models::WeightFiles weights, models::WeightFiles::Open(folder));
  std::vector<nn::Parameter*> fresh;
  if (!models::MatchEntries(*model, weights, &fresh).ok()) return OkStatus();
  for (const nn::Parameter* parameter : fresh) {
    const std::string name = weights.wrapper() + parameter->name;
    const models::WeightEntry* const entry = weights.Find(name);
    if (entry == nullptr) continue;
    return InvalidArgument(
        weights.PathOf(name), ": tensor '", name, "' of the head has shape ",
        Shape(entry->shape.begin(), entry->shape.end()), ", and the labels of the data ask for ",
        parameter->placement.global_shape(), "; --ignore-mismatched-sizes true makes a new head");
  }
  return OkStatus();
}

// The model's configuration is then the one that is built.
Status ApplyData(Plan* plan) {
  plan->base.Change(*plan->setup.data.model_changes);
  plan->shape.reset();
  TESSERA_RETURN_IF_ERROR(CountParameters(plan));
  return CheckTrainedHead(*plan);
}

// Collective over the mesh's world.
StatusOr<std::unique_ptr<models::Model>> BuildTheModel(const nn::BuildContext& build,
                                                       const dist::Mesh& mesh, Plan* plan) {
  RunConfig config = plan->setup.config;
  if (plan->setup.data.disables_dropout) config.dropout = 0;
  return BuildRankModel(config, mesh, build, dist::BlocksOf(plan->base.config, build),
                        [plan](const nn::BuildContext& part) { return LoadPart(part, plan); });
}

// --- Ranks ---------------------------------------------------------------------------------------

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
    const auto mine = ParseJson(all[r], "a rank's configuration").value();
    const auto theirs = ParseJson(all[usual], "a rank's configuration").value();
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

std::vector<std::string> PathsRead(const RunConfig& config) {
  std::vector<std::string> paths = {config.model, config.tokenizer, config.adapter,
                                    config.Validation()};
  for (const DataSource& source : config.Sources()) paths.push_back(source.path);
  const nlohmann::ordered_json keys = config.ToJson();  // those of the task are there alone
  for (const char* key : {"target_data", "val_target_data", "reference_model"}) {
    const auto value = keys.find(key);
    if (value != keys.end() && value->is_string()) paths.push_back(value->get<std::string>());
  }
  return paths;
}

StatusOr<dist::Mesh> MakeMesh(const RunConfig& config, const dist::Group& world) {
  const dist::Mesh whole(world, {});
  TESSERA_RETURN_IF_ERROR(Agree(whole, config.ValidateFor(world->size())));
  if (world->size() == 1) return whole;
  nlohmann::ordered_json json = config.ToJson();
  json.erase("threads");                                           // a rank's own
  if (config.device.starts_with("cuda")) json["device"] = "cuda";  // which one is, too
  TESSERA_RETURN_IF_ERROR(
      Agree(whole, CompareConfigurations(dist::GatherStrings(*world, json.dump()))));
  return dist::Mesh(world, config.mesh_sizes());
}

namespace {

// What a run writes is nothing that it reads: its config.json would replace the model's, and a
// profile any file that it is named after.
Status CheckOut(const RunConfig& config) {
  for (const auto& [key, path] :
       {std::pair("out", &config.out), std::pair("profile", &config.profile)}) {
    if (*path != "-") continue;
    return InvalidArgument(key, ": '-' is standard output, which has the run's progress; give a ",
                           "path (./- is a file of that name)");
  }
  if (!config.profile.empty()) {
    TESSERA_RETURN_IF_ERROR(RefuseInputs({config.profile}, PathsRead(config)));
  }
  if (FindInvalidUtf8(config.model) != kNoInvalidUtf8) {
    return InvalidArgument("model: '", ReplaceInvalidUtf8(config.model),
                           "' is not UTF-8, as what config.json records must be; rename it, or ",
                           "make a link to it whose name is");
  }
  std::error_code error;
  if (!IsDirectory(config.model) || !std::filesystem::equivalent(config.model, config.out, error)) {
    return OkStatus();
  }
  return InvalidArgument("out: '", config.out,
                         "' is the folder of the model, whose config.json the ",
                         "run's would replace; give another --out");
}

}  // namespace

namespace {

// Shares `plan`. A model that is built for a look says nothing to the run's user.
OpenedRun OpenedOf(const std::shared_ptr<Plan>& plan) {
  return {.setup = std::shared_ptr<const RunSetup>(plan, &plan->setup),
          .model = plan->base.config,
          .build = [plan](const dist::Mesh& mesh,
                          const Device& device) -> StatusOr<std::unique_ptr<models::Model>> {
            TESSERA_ASSIGN_OR_RETURN(const nn::BuildContext build,
                                     BuildContextOf(plan->setup.config, mesh, device));
            const size_t warnings = plan->setup.warnings.size();
            StatusOr<std::unique_ptr<models::Model>> model = BuildTheModel(build, mesh, plan.get());
            plan->setup.warnings.resize(warnings);
            return model;
          }};
}

}  // namespace

StatusOr<RunSetup> PrepareRun(const RunConfig& config, const dist::Mesh& mesh,
                              const std::optional<Device>& device, const BeforeModel& before) {
  const auto plan = std::make_shared<Plan>();
  plan->setup.config = config;
  plan->cache = JoinPath(config.out, "data");
  const int rank = mesh.world()->rank();
  const RankPlace place = FindRankPlace(*mesh.world());
  SetUpProcess(config, place);
  Status status = config.Validate();
  if (status.ok()) status = CheckSource(config);
  if (status.ok()) status = CheckOut(config);
  // Before anything in the run's directory is touched.
  if (status.ok() && rank == 0) status = RunLock::Take(config.out, &plan->setup.lock);
  if (status.ok()) status = Describe(plan.get());
  const StatusOr<nn::BuildContext> build =
      status.ok() ? BuildContextOf(config, mesh, device) : StatusOr<nn::BuildContext>(status);
  status.Update(build.status());
  TESSERA_RETURN_IF_ERROR(Agree(mesh, status));
  // The data are made by one rank, then by those of other hosts (which find them made where hosts
  // share the directory), and opened by all.
  for (int round = 0; round < 3; ++round) {
    const int mine = rank == 0 ? 0 : place.local_rank == 0 ? 1 : 2;
    TESSERA_RETURN_IF_ERROR(Agree(mesh, round == mine ? OpenTheData(plan.get()) : OkStatus()));
  }
  TESSERA_RETURN_IF_ERROR(Agree(mesh, ApplyData(plan.get())));
  if (before != nullptr) {
    TESSERA_RETURN_IF_ERROR(Agree(mesh, rank == 0 ? before(OpenedOf(plan)) : OkStatus()));
  }
  TESSERA_ASSIGN_OR_RETURN(plan->setup.model, BuildTheModel(*build, mesh, plan.get()));
  return std::move(plan->setup);
}

StatusOr<OpenedRun> OpenRun(const RunConfig& config, const std::string& cache) {
  const auto plan = std::make_shared<Plan>();
  plan->setup.config = config;
  plan->cache = cache;
  TESSERA_RETURN_IF_ERROR(config.Validate());
  TESSERA_RETURN_IF_ERROR(Describe(plan.get()));
  TESSERA_RETURN_IF_ERROR(OpenTheData(plan.get()));
  TESSERA_RETURN_IF_ERROR(ApplyData(plan.get()));
  return OpenedOf(plan);
}

StatusOr<RunSetup> PrepareEvaluation(const RunConfig& config, const nn::BuildContext& build,
                                     const EvaluationSetup& evaluation) {
  Plan plan;
  plan.setup.config = config;
  plan.cache = evaluation.cache;
  plan.evaluation = true;
  plan.prediction = evaluation.prediction;
  plan.quantize = evaluation.quantize;
  TESSERA_RETURN_IF_ERROR(config.Validate());
  TESSERA_RETURN_IF_ERROR(Describe(&plan));
  TESSERA_RETURN_IF_ERROR(OpenTheData(&plan));
  TESSERA_RETURN_IF_ERROR(ApplyData(&plan));
  TESSERA_ASSIGN_OR_RETURN(plan.setup.model, BuildTheModel(build, {}, &plan));
  return std::move(plan.setup);
}

}  // namespace tessera::train
