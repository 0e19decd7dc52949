#include "models/hub/load_model.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/tokenizer/json_text.h"
#include "models/family.h"
#include "models/hub/match_entries.h"
#include "models/hub/weight_files.h"

namespace tessera::models {
namespace {

// Gives a parameter its values where it can be written to.
void Write(const Model& model, nn::Parameter& parameter, const std::function<void()>& write) {
  if (model.build().around_loading) {
    model.build().around_loading(parameter, write);
  } else {
    write();
  }
}

// As LoadWeights; with `fresh`, as LoadWeightsBesidesHead.
Status LoadMatching(Model& model, const WeightFiles& weights, std::vector<nn::Parameter*>* fresh) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<EntryMatch> matches,
                           MatchEntries(model, weights, fresh));
  if (model.build().device.is_meta()) return OkStatus();
  for (const EntryMatch& match : matches) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor whole, weights.Read(match.entry));
    Write(model, *match.parameter, [&] {
      const Tensor& mine = match.parameter->tensor;
      CopyGlobalToLocal(match.parameter->placement, CopyTo(whole, mine.device()), mine.Detach());
    });
  }
  return OkStatus();
}

// Returns the names of the parameters that were initialised instead.
StatusOr<std::vector<std::string>> LoadBesidesHead(Model& model, const WeightFiles& weights) {
  std::vector<nn::Parameter*> fresh;
  TESSERA_RETURN_IF_ERROR(LoadMatching(model, weights, &fresh));
  std::vector<std::string> names;
  for (nn::Parameter* parameter : fresh) {
    Write(model, *parameter, [&] { nn::InitialiseParameter(*parameter, model.build().seed); });
    names.push_back(parameter->name);
  }
  return names;
}

StatusOr<std::unique_ptr<Model>> BuildNamed(const std::string& source, const nlohmann::json& config,
                                            const nn::BuildContext& build) {
  auto model = BuildModel(config, build);
  if (model.ok()) return model;
  return Failure(model.status().code(), source, ": ", Message(model.status()));
}

// The whole model, without memory: what files can be held to.
nn::BuildContext DryContext(const nn::BuildContext& build) {
  nn::BuildContext dry = build;
  dry.device = Device::Meta(build.device.is_meta() ? build.device.target : build.device.type);
  dry.on_parameter = nullptr;
  dry.around_loading = nullptr;
  dry.first_block = 0;
  dry.end_block = -1;
  return dry;
}

// Ties or unties what the configuration says otherwise than the files. A model that cannot be built
// is left to the one who builds it.
Status TieAsWeightsAre(const WeightFiles& weights, nlohmann::json* config) {
  const auto found = FamilyOf(*config);
  if (!found.ok() || (*found)->untie == nullptr) return OkStatus();
  const Family& family = **found;
  nlohmann::json tied = *config;
  if (family.tie != nullptr) family.tie(&tied);
  const auto model = BuildModel(tied, DryContext({.initialise = false}));
  if (!model.ok()) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const Pairs pairs, PairsInFiles(**model, weights));
  if (pairs == Pairs::kEqual) *config = std::move(tied);
  if (pairs == Pairs::kDiffer) family.untie(config);
  return OkStatus();
}

StatusOr<nlohmann::json> ReadConfigFile(const std::string& folder) {
  const std::string path = JoinPath(folder, "config.json");
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, data::ReadJsonFile(path));
  if (!config.is_object()) return InvalidArgument(path, ": not a JSON object");
  return config;
}

void Change(const nlohmann::json& changes, nlohmann::json* config) {
  if (!changes.is_object()) return;
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null()) {
      config->erase(key);
    } else {
      (*config)[key] = value;
    }
  }
}

StatusOr<std::unique_ptr<Model>> BuildFresh(const std::string& source, nlohmann::json config,
                                            const LoadOptions& options) {
  if (options.require_weights) {
    return NotFound(source, IsDirectory(source)
                                ? ": the folder holds no weights (model.safetensors)"
                                : ": a preset has no weights; train it first");
  }
  nn::BuildContext build = options.build;
  build.initialise = true;
  Change(options.config_changes, &config);
  return BuildNamed(IsDirectory(source) ? JoinPath(source, "config.json") : source, config, build);
}

}  // namespace

StatusOr<nlohmann::json> ReadModelConfig(const std::string& folder_or_preset) {
  if (IsDirectory(folder_or_preset)) {
    TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadConfigFile(folder_or_preset));
    if (!WeightFiles::Exist(folder_or_preset)) return config;
    TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder_or_preset));
    TESSERA_RETURN_IF_ERROR(TieAsWeightsAre(weights, &config));
    return config;
  }
  if (const Preset* preset = FindPreset(folder_or_preset)) return preset->config;
  return NotFound("'", folder_or_preset,
                  "' is neither a folder nor a preset (`tessera models` lists the presets)");
}

Status LoadWeights(Model& model, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder));
  return LoadMatching(model, weights, nullptr);
}

StatusOr<std::vector<std::string>> LoadWeightsBesidesHead(Model& model, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder));
  return LoadBesidesHead(model, weights);
}

StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& folder_or_preset,
                                           const LoadOptions& options) {
  if (!IsDirectory(folder_or_preset) || !WeightFiles::Exist(folder_or_preset)) {
    TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadModelConfig(folder_or_preset));
    return BuildFresh(folder_or_preset, std::move(config), options);
  }
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadConfigFile(folder_or_preset));
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder_or_preset));
  Change(options.config_changes, &config);
  // Who says it is not second-guessed; weights that do not go with it are refused.
  const bool said =
      options.config_changes.is_object() && options.config_changes.contains("tie_word_embeddings");
  if (!said) TESSERA_RETURN_IF_ERROR(TieAsWeightsAre(weights, &config));
  nn::BuildContext build = options.build;
  build.initialise = false;
  const auto load = [&](Model& model) -> StatusOr<std::vector<std::string>> {
    if (options.ignore_mismatched_sizes) return LoadBesidesHead(model, weights);
    TESSERA_RETURN_IF_ERROR(LoadMatching(model, weights, nullptr));
    return std::vector<std::string>();
  };
  const std::string source = JoinPath(folder_or_preset, "config.json");
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> shapes,
                           BuildNamed(source, config, DryContext(build)));
  TESSERA_RETURN_IF_ERROR(load(*shapes).status());
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, BuildNamed(source, config, build));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> fresh, load(*model));
  if (!fresh.empty() && options.warn != nullptr) {
    options.warn(Concat(folder_or_preset, ": ", fresh.size() == 1 ? "a tensor" : "tensors",
                        " of the head not there in this shape, initialised: ", QuotedNames(fresh)));
  }
  return model;
}

}  // namespace tessera::models
