#include "models/hub/load_model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/tokenizer/json_text.h"
#include "models/family.h"
#include "models/hub/weight_files.h"

namespace tessera::models {
namespace {

constexpr int kNamesShown = 3;

// Which entry of the files goes into which parameter.
struct Match {
  nn::Parameter* parameter = nullptr;
  std::string entry;
};

std::string Quoted(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamesShown; ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (names.size() > kNamesShown) text += Concat(" and ", names.size() - kNamesShown, " more");
  return text;
}

// The names that the Hub may have a parameter under, its own first.
std::vector<std::string> NamesOf(const Family& family, const nn::Parameter& parameter) {
  std::vector<std::string> names = {parameter.name};
  if (family.other_names != nullptr) {
    for (std::string& name : family.other_names(parameter.name)) names.push_back(std::move(name));
  }
  return names;
}

bool IsWhole(const Model& model) {
  return model.block_range() == std::pair<int, int>(0, model.num_blocks());
}

bool IsHead(const Family& family, const std::string& name) {
  return family.is_head != nullptr && family.is_head(name);
}

bool SameShape(const Match& match, const WeightFiles& weights) {
  const Shape& expected = match.parameter->placement.global_shape();
  return weights.Find(match.entry)->shape == std::vector<int64_t>(expected.begin(), expected.end());
}

// Finds an entry for every parameter that is not tied, and none left over. With `fresh`, parameters
// of a head without an entry of the right shape go there.
StatusOr<std::vector<Match>> MatchEntries(Model& model, const WeightFiles& weights,
                                          const std::string& folder,
                                          std::vector<nn::Parameter*>* fresh) {
  const Family& family = **FamilyOf(model.config());
  std::vector<Match> matches;
  std::vector<std::string> missing;
  std::set<std::string> known;
  const std::vector<nn::Parameter*> parameters = model.Parameters();
  std::map<const nn::Parameter*, std::vector<nn::Parameter*>> ties;
  for (nn::Parameter* parameter : parameters) {
    if (parameter->tied_to != nullptr) ties[parameter->tied_to].push_back(parameter);
  }
  for (nn::Parameter* parameter : parameters) {
    std::vector<std::string> names = NamesOf(family, *parameter);
    known.insert(names.begin(), names.end());
    if (parameter->tied_to != nullptr) continue;
    for (const nn::Parameter* other : ties[parameter]) {
      for (std::string& name : NamesOf(family, *other)) names.push_back(std::move(name));
    }
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return weights.Find(name) != nullptr;
    });
    const bool replaceable = fresh != nullptr && IsHead(family, parameter->name);
    if (found == names.end()) {
      if (replaceable) {
        fresh->push_back(parameter);
      } else {
        missing.push_back(parameter->name);
      }
    } else if (const Match match = {parameter, *found}; replaceable && !SameShape(match, weights)) {
      fresh->push_back(parameter);
    } else {
      matches.push_back(match);
    }
  }
  std::vector<std::string> unknown;
  for (std::string& name : weights.Names()) {
    if (known.count(name) != 0) continue;
    if (family.ignored_entry != nullptr && family.ignored_entry(name)) continue;
    if (IsHead(family, name)) continue;
    unknown.push_back(std::move(name));
  }
  // A pipeline stage leaves the other stages' tensors alone.
  if (!unknown.empty() && IsWhole(model)) {
    return InvalidArgument(weights.PathOf(unknown[0]), ": unknown ",
                           unknown.size() == 1 ? "tensor " : "tensors ", Quoted(unknown));
  }
  if (!missing.empty()) {
    return InvalidArgument(folder, ": ", missing.size(),
                           missing.size() == 1 ? " tensor is" : " tensors are",
                           " missing: ", Quoted(missing));
  }
  return matches;
}

Status CheckMatch(const Match& match, const WeightFiles& weights) {
  const SafetensorsFile::Entry& entry = *weights.Find(match.entry);
  const Shape& expected = match.parameter->placement.global_shape();
  if (!SameShape(match, weights)) {
    std::string found;
    for (int64_t size : entry.shape) found += Concat(found.empty() ? "" : ", ", size);
    return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry, "' has shape [",
                           found, "]; the configuration asks for ", expected);
  }
  const std::optional<DType> dtype = ParseSafetensorsDType(entry.dtype);
  if (!dtype || !IsFloating(*dtype)) {
    return InvalidArgument(weights.PathOf(match.entry), ": tensor '", match.entry,
                           "' has elements of type ", entry.dtype,
                           "; weights must be F16, BF16, F32 or F64");
  }
  return OkStatus();
}

// Gives a parameter its values where it can be written to.
void Write(const Model& model, nn::Parameter& parameter, const std::function<void()>& write) {
  if (model.build().around_loading) {
    model.build().around_loading(parameter, write);
  } else {
    write();
  }
}

// As LoadWeights; with `fresh`, as LoadWeightsBesidesHead.
Status LoadMatching(Model& model, const std::string& folder, std::vector<nn::Parameter*>* fresh) {
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<Match> matches,
                           MatchEntries(model, weights, folder, fresh));
  for (const Match& match : matches) TESSERA_RETURN_IF_ERROR(CheckMatch(match, weights));
  if (model.build().device.is_meta()) return OkStatus();
  for (const Match& match : matches) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor whole, weights.Read(match.entry));
    Write(model, *match.parameter, [&] {
      const Tensor& mine = match.parameter->tensor;
      CopyGlobalToLocal(match.parameter->placement, CopyTo(whole, mine.device()), mine.Detach());
    });
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<Model>> BuildNamed(const std::string& source, const nlohmann::json& config,
                                            const nn::BuildContext& build) {
  auto model = BuildModel(config, build);
  if (model.ok()) return model;
  return Failure(model.status().code(), source, ": ", Message(model.status()));
}

}  // namespace

StatusOr<nlohmann::json> ReadModelConfig(const std::string& folder_or_preset) {
  if (IsDirectory(folder_or_preset)) {
    const std::string path = JoinPath(folder_or_preset, "config.json");
    TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, data::ReadJsonFile(path));
    if (!config.is_object()) return InvalidArgument(path, ": not a JSON object");
    return config;
  }
  if (const Preset* preset = FindPreset(folder_or_preset)) return preset->config;
  return NotFound("'", folder_or_preset,
                  "' is neither a folder nor a preset (`tessera models` lists the presets)");
}

Status LoadWeights(Model& model, const std::string& folder) {
  return LoadMatching(model, folder, nullptr);
}

StatusOr<std::vector<std::string>> LoadWeightsBesidesHead(Model& model, const std::string& folder) {
  std::vector<nn::Parameter*> fresh;
  TESSERA_RETURN_IF_ERROR(LoadMatching(model, folder, &fresh));
  std::vector<std::string> names;
  for (nn::Parameter* parameter : fresh) {
    Write(model, *parameter, [&] { nn::InitialiseParameter(*parameter, model.build().seed); });
    names.push_back(parameter->name);
  }
  return names;
}

StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& folder_or_preset,
                                           const LoadOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadModelConfig(folder_or_preset));
  if (options.config_changes.is_object()) {
    for (const auto& [key, value] : options.config_changes.items()) {
      if (value.is_null()) {
        config.erase(key);
      } else {
        config[key] = value;
      }
    }
  }
  const bool is_folder = IsDirectory(folder_or_preset);
  const std::string source =
      is_folder ? JoinPath(folder_or_preset, "config.json") : folder_or_preset;
  nn::BuildContext build = options.build;
  build.initialise = !is_folder || !WeightFiles::Exist(folder_or_preset);
  if (build.initialise) {
    if (options.require_weights) {
      return NotFound(folder_or_preset, is_folder
                                            ? ": the folder holds no weights (model.safetensors)"
                                            : ": a preset has no weights; train it first");
    }
    return BuildNamed(source, config, build);
  }
  nn::BuildContext dry = build;
  dry.device = Device::Meta(build.device.is_meta() ? build.device.target : build.device.type);
  dry.on_parameter = nullptr;
  dry.around_loading = nullptr;
  const auto load = [&](Model& model) -> StatusOr<std::vector<std::string>> {
    if (options.ignore_mismatched_sizes) return LoadWeightsBesidesHead(model, folder_or_preset);
    TESSERA_RETURN_IF_ERROR(LoadWeights(model, folder_or_preset));
    return std::vector<std::string>();
  };
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> shapes, BuildNamed(source, config, dry));
  TESSERA_RETURN_IF_ERROR(load(*shapes).status());
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, BuildNamed(source, config, build));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> fresh, load(*model));
  if (!fresh.empty() && options.warn != nullptr) {
    options.warn(Concat(folder_or_preset, ": ", fresh.size() == 1 ? "a tensor" : "tensors",
                        " of the head not there in this shape, initialised: ", Quoted(fresh)));
  }
  return model;
}

}  // namespace tessera::models
