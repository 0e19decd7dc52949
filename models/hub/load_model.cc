// SPDX-License-Identifier: Apache-2.0
#include "models/hub/load_model.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "models/family.h"
#include "models/hub/adapter.h"
#include "models/hub/change_config.h"
#include "models/hub/match_entries.h"
#include "models/hub/other_checkpoints.h"
#include "models/hub/quantized_entries.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

// Pieces in which tensors are copied, for the progress to be told in between.
constexpr int64_t kPieceBytes = int64_t{8} << 20;

// Gives a parameter its values where it can be written to.
void Write(const Model& model, nn::Parameter& parameter, const std::function<void()>& write) {
  if (model.build().around_loading) {
    model.build().around_loading(parameter, write);
  } else {
    write();
  }
}

// Counts the bytes of the files that are loaded.
class Counter {
 public:
  Counter(LoadProgress progress, const std::string& folder)
      : progress_(std::move(progress)), folder_(folder) {}

  Status Begin(const std::vector<EntryMatch>& matches, const WeightFiles& weights) {
    for (const EntryMatch& match : matches) all_ += weights.Find(match.entry)->nbytes;
    return Add(0);
  }
  Status Add(int64_t bytes) {
    done_ = std::min(done_ + bytes, all_);  // rows that are new are not the files'
    if (progress_ == nullptr || progress_(done_, all_)) return OkStatus();
    return Failure(StatusCode::kCancelled, folder_, ": loading was cancelled");
  }

 private:
  const LoadProgress progress_;
  const std::string& folder_;
  int64_t done_ = 0;
  int64_t all_ = 0;
};

// Rows [begin, begin + count) of a tensor.
Tensor Rows(const Tensor& t, int64_t begin, int64_t count) {
  Shape shape = t.shape();
  shape[0] = count;
  return t.AsStrided(shape, t.strides(), t.offset() + begin * t.stride(0));
}

// mine = whole, some rows at a time.
Status CopyPieces(const Tensor& mine, const Tensor& whole, Counter* counter) {
  const int64_t rows = whole.ndim() == 0 || whole.numel() == 0 ? 1 : whole.size(0);
  const int64_t at_once =
      std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, whole.nbytes() / rows));
  if (at_once >= rows) {
    CopyInto(mine, whole);
    return counter->Add(whole.nbytes());
  }
  for (int64_t begin = 0; begin < rows; begin += at_once) {
    const Tensor piece = Rows(whole, begin, std::min(at_once, rows - begin));
    CopyInto(Rows(mine, begin, piece.size(0)), piece);
    TESSERA_RETURN_IF_ERROR(counter->Add(piece.nbytes()));
  }
  return OkStatus();
}

Status LoadEntry(const Model& model, const EntryMatch& match, const WeightFiles& weights,
                 const QuantizedLoading& loading, Counter* counter) {
  nn::Parameter& parameter = *match.parameter;
  if (parameter.tensor.device().is_meta()) return OkStatus();  // quantised, and made already
  const int64_t bytes = weights.Find(match.entry)->nbytes;
  if (parameter.elsewhere) return counter->Add(bytes);
  if (QuantTypeOfEntry(match.entry)) {
    Status status;
    Write(model, parameter, [&] {
      status = loading.CopyDense(parameter, parameter.tensor.Detach(),
                                 [&](int64_t copied) { return counter->Add(copied); });
    });
    return status;
  }
  TESSERA_ASSIGN_OR_RETURN(const Tensor whole, loading.ReadDense(parameter));
  // Built on the file's bytes.
  if (parameter.tensor.storage()->data() == whole.storage()->data()) return counter->Add(bytes);
  Status status;
  Write(model, parameter, [&] {
    const Tensor mine = parameter.tensor.Detach();
    if (parameter.placement.is_whole() && mine.device().is_cpu()) {
      status = CopyPieces(mine, whole, counter);
    } else {
      CopyGlobalToLocal(parameter.placement, CopyTo(whole, mine.device()), mine);
      status = counter->Add(bytes);
    }
  });
  return status;
}

// As LoadWeights; with `fresh`, as LoadWeightsBesidesHead.
Status LoadMatching(Model& model, const WeightFiles& weights, std::vector<nn::Parameter*>* fresh,
                    Counter* counter) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<EntryMatch> matches,
                           MatchEntries(model, weights, fresh));
  if (model.build().device.is_meta()) return OkStatus();
  const QuantizedLoading loading(weights, matches, nn::QuantizableWeights(model), std::nullopt);
  for (const EntryMatch& match : matches) {
    TESSERA_RETURN_IF_ERROR(LoadEntry(model, match, weights, loading, counter));
  }
  return OkStatus();
}

// Of the parameters, by name, that can be the files' own bytes, these.
std::map<std::string, std::shared_ptr<Storage>> StoragesInFiles(
    const std::vector<EntryMatch>& matches, const WeightFiles& weights, DType dtype) {
  std::map<std::string, std::shared_ptr<Storage>> storages;
  for (const EntryMatch& match : matches) {
    const WeightEntry& entry = *weights.Find(match.entry);
    const bool fits =
        match.parameter->placement.is_whole() && ParseSafetensorsDType(entry.dtype) == dtype &&
        Shape(entry.shape.begin(), entry.shape.end()) == match.parameter->placement.global_shape();
    if (!fits) continue;
    const StatusOr<Tensor> tensor = weights.Read(match.entry);
    if (tensor.ok() && tensor->storage()->read_only()) {
      storages.emplace(match.parameter->name, tensor->storage());
    }
  }
  return storages;
}

// Returns the names of the parameters that were initialised instead.
StatusOr<std::vector<std::string>> LoadBesidesHead(Model& model, const WeightFiles& weights,
                                                   Counter* counter) {
  std::vector<nn::Parameter*> fresh;
  TESSERA_RETURN_IF_ERROR(LoadMatching(model, weights, &fresh, counter));
  std::vector<std::string> names;
  for (nn::Parameter* parameter : fresh) {
    Write(model, *parameter, [&] { nn::InitialiseParameter(*parameter, model.build().seed); });
    names.push_back(parameter->name);
  }
  return names;
}

// The forms of parameters, made as the model is built.
class FormsOfFiles {
 public:
  FormsOfFiles(const WeightFiles& weights, const std::vector<EntryMatch>& matches, Model& shapes,
               std::optional<QuantType> type, bool map, Counter* counter)
      : weights_(weights),
        loading_(weights, matches, nn::QuantizableWeights(shapes), type, map),
        counter_(counter) {
    for (const EntryMatch& match : matches) bytes_[match.parameter->name] = BytesOf(match);
    const bool held = std::any_of(matches.begin(), matches.end(), [](const EntryMatch& match) {
      return QuantTypeOfEntry(match.entry).has_value();
    });
    wanted_ = type.has_value() || held;
    if (type && !held && !AnyFits(shapes, *type)) none_fits_ = type;
  }

  // To be called once; `build` may be used beyond this object's life, when there is nothing more.
  Status AddTo(nn::BuildContext* build) {
    if (!wanted_) return OkStatus();
    if (none_fits_) {
      return InvalidArgument(weights_.folder(), ": no weight can be ", QuantTypeName(*none_fits_),
                             ", which needs rows of a multiple of ", LayoutOf(*none_fits_).columns,
                             " numbers");
    }
    if (!build->device.is_cpu() && !build->device.is_meta()) {
      return InvalidArgument(weights_.folder(), ": quantised weights are for the CPU, not ",
                             build->device);
    }
    if (build->dtype == DType::kFloat64) {
      return InvalidArgument(weights_.folder(),
                             ": quantised weights go with float32, bfloat16 and float16, not ",
                             build->dtype);
    }
    build->form_of = [device = build->device, self = std::weak_ptr<FormsOfFiles*>(self_)](
                         const nn::Parameter& p) -> std::shared_ptr<const nn::WeightForm> {
      const auto forms = self.lock();
      return forms == nullptr ? nullptr : (*forms)->FormOf(p, device);
    };
    return OkStatus();
  }
  // What went wrong meanwhile.
  const Status& status() const { return status_; }

 private:
  // Of the whole model, so that all ranks say the same.
  static bool AnyFits(Model& shapes, QuantType type) {
    for (const auto& [name, layout] : nn::QuantizableWeights(shapes)) {
      const nn::Parameter* const p = shapes.FindParameter(name);
      if (p == nullptr) continue;
      const Shape& shape = p->placement.global_shape();
      if (CanQuantize(type, shape[layout == LinearLayout::kOutIn ? 1 : 0])) return true;
    }
    return false;
  }
  int64_t BytesOf(const EntryMatch& match) const { return weights_.Find(match.entry)->nbytes; }

  std::shared_ptr<const nn::WeightForm> FormOf(const nn::Parameter& p, const Device& device) {
    if (!status_.ok()) return nullptr;
    auto form = loading_.FormOf(p, device);
    status_.Update(form.status());
    if (!form.ok() || *form == nullptr) return nullptr;
    if (!device.is_meta()) status_.Update(counter_->Add(bytes_.at(p.name)));
    return *std::move(form);
  }

  const WeightFiles& weights_;
  const QuantizedLoading loading_;
  Counter* const counter_;
  std::map<std::string, int64_t> bytes_;
  bool wanted_ = false;
  std::optional<QuantType> none_fits_;  // what is asked for, and no weight can be
  Status status_;
  const std::shared_ptr<FormsOfFiles*> self_ = std::make_shared<FormsOfFiles*>(this);
};

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
  dry.storage_of = nullptr;
  dry.on_parameter = nullptr;
  dry.around_loading = nullptr;
  dry.first_block = 0;
  dry.end_block = -1;
  return dry;
}

// Parameters that others cut, move or give memory to are copied.
bool CanMap(const nn::BuildContext& build) {
  return build.device.is_cpu() && build.on_parameter == nullptr && build.around_loading == nullptr;
}

bool HavePooler(const WeightFiles& weights) {
  const std::vector<std::string> names = weights.Names();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.find("pooler.") != std::string::npos;
  });
}

// Gives a configuration without a class, of files without a head, the family's class that has none.
void NameBareClass(const Family& family, const WeightFiles& weights, nlohmann::json* config) {
  const auto named = config->find("architectures");
  if (family.is_head == nullptr || (named != config->end() && !named->empty())) return;
  for (const std::string& name : weights.Names()) {
    const bool pooler = name.find("pooler.") != std::string::npos;
    if (!pooler && family.is_head(name.substr(weights.wrapper().size()))) return;
  }
  for (const Architecture& architecture : family.architectures) {
    if (!architecture.name.ends_with("Model")) continue;
    (*config)["architectures"] = {architecture.name};
    return;
  }
}

// Whether the class that wrote the files has no head: "Qwen3Model".
bool IsBare(const nlohmann::json& config) {
  const auto names = config.find("architectures");
  return names != config.end() && names->is_array() && !names->empty() && (*names)[0].is_string() &&
         (*names)[0].get<std::string>().ends_with("Model");
}

// Changes a configuration where the files differ from it: weights are tied or not, and a pooler
// or a head is there or not. `ties` false leaves the ties alone. A model that cannot be built is
// left to the one who builds it.
Status FitToWeights(const WeightFiles& weights, bool ties, nlohmann::json* config) {
  const auto found = FamilyOf(*config);
  if (!found.ok()) return OkStatus();
  const Family& family = **found;
  NameBareClass(family, weights, config);
  if (family.leave_out_pooler != nullptr && !HavePooler(weights)) family.leave_out_pooler(config);
  if (family.leave_out_lm_head != nullptr && IsBare(*config) &&
      weights.Find(weights.wrapper() + "lm_head.weight") == nullptr) {
    family.leave_out_lm_head(config);
  }
  if (!ties || family.untie == nullptr) return OkStatus();
  nlohmann::json tied = *config;
  if (family.tie != nullptr) family.tie(&tied);
  const auto model = BuildModel(tied, DryContext({.initialise = false}));
  if (!model.ok()) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const Pairs pairs, PairsInFiles(**model, weights));
  if (pairs == Pairs::kEqual) *config = std::move(tied);
  if (pairs == Pairs::kDiffer) family.untie(config);
  return OkStatus();
}

Status LoadAdapters(Model& model, const LoadOptions& options) {
  for (size_t i = 0; i < options.adapters.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(LoadAdapter(model, options.adapters[i], static_cast<int>(i)).status());
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<Model>> BuildFresh(const std::string& source, nlohmann::json config,
                                            const LoadOptions& options) {
  if (IsDirectory(source)) {
    // Weights that cannot be read are not to be passed over.
    const Status none = WeightFiles::Open(source).status();
    if (none.code() != StatusCode::kNotFound) return none;
  }
  if (options.require_weights || options.quantize) {
    return NotFound(source, IsDirectory(source)
                                ? ": the folder holds no weights (model.safetensors)"
                                : ": a preset has no weights; train it first");
  }
  nn::BuildContext build = options.build;
  build.initialise = true;
  if (options.config_changes->is_object()) ChangeConfig(options.config_changes, &config);
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> model,
      BuildNamed(IsDirectory(source) ? JoinPath(source, "config.json") : source, config, build));
  TESSERA_RETURN_IF_ERROR(LoadAdapters(*model, options));
  return model;
}

}  // namespace

StatusOr<nlohmann::json> ReadConfigFile(const std::string& folder) {
  const std::string path = JoinPath(folder, "config.json");
  if (!PathExists(path)) {
    if (PathExists(JoinPath(folder, "checkpoint.json"))) {
      return InvalidArgument(folder,
                             ": is a checkpoint of a run, which `train --resume` continues; "
                             "the model is the run's folder 'model'");
    }
    if (PathExists(JoinPath(folder, std::string(kAdapterConfigName)))) {
      return InvalidArgument(folder,
                             ": is an adapter, and no model; give the model that it was trained "
                             "beside, and this folder as its adapter");
    }
    const std::string others = CheckpointOfOthersIn(folder);
    if (!others.empty()) {
      return InvalidArgument(folder, ": is no model (config.json), but ", others);
    }
  }
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadJsonFile(path));
  if (!config.is_object()) return InvalidArgument(path, ": not a JSON object");
  TESSERA_RETURN_IF_ERROR(CheckQuantizationConfig(config, path));
  // FlagAI's GLM folders do not say what they are, by a key that only they have.
  if (!config.contains("model_type") && config.contains("block_position_encoding")) {
    config["model_type"] = "glm";
  }
  return config;
}

StatusOr<nlohmann::json> ReadModelConfig(const std::string& folder_or_preset) {
  if (IsDirectory(folder_or_preset)) {
    TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadConfigFile(folder_or_preset));
    if (!WeightFiles::Exist(folder_or_preset)) return config;
    TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder_or_preset));
    TESSERA_RETURN_IF_ERROR(FitToWeights(weights, /*ties=*/true, &config));
    return config;
  }
  if (const Preset* preset = FindPreset(folder_or_preset)) return *preset->config;
  return NotFound("'", folder_or_preset,
                  "' is neither a folder nor a preset (`tessera models` lists the presets)");
}

Status LoadWeights(Model& model, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder));
  Counter counter(nullptr, folder);
  return LoadMatching(model, weights, nullptr, &counter);
}

StatusOr<std::vector<std::string>> LoadWeightsBesidesHead(Model& model, const std::string& folder) {
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder));
  Counter counter(nullptr, folder);
  return LoadBesidesHead(model, weights, &counter);
}

StatusOr<std::unique_ptr<Model>> LoadModel(const std::string& folder_or_preset,
                                           const LoadOptions& options) {
  if (!IsDirectory(folder_or_preset) || !WeightFiles::Exist(folder_or_preset)) {
    TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadModelConfig(folder_or_preset));
    return BuildFresh(folder_or_preset, std::move(config), options);
  }
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json config, ReadConfigFile(folder_or_preset));
  TESSERA_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::Open(folder_or_preset));
  if (options.config_changes->is_object()) ChangeConfig(options.config_changes, &config);
  // Who says it is not second-guessed; weights that do not go with it are refused.
  const bool said = options.config_changes->is_object() &&
                    options.config_changes->contains("tie_word_embeddings");
  TESSERA_RETURN_IF_ERROR(FitToWeights(weights, !said, &config));
  nn::BuildContext build = options.build;
  build.initialise = false;
  const std::string source = JoinPath(folder_or_preset, "config.json");
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> shapes,
                           BuildNamed(source, config, DryContext(build)));
  std::vector<nn::Parameter*> fresh_shapes;
  TESSERA_ASSIGN_OR_RETURN(
      const std::vector<EntryMatch> matches,
      MatchEntries(*shapes, weights, options.ignore_mismatched_sizes ? &fresh_shapes : nullptr));
  // The model keeps what it was built with: what is in here only as long as it is built.
  const auto in_files = std::make_shared<std::map<std::string, std::shared_ptr<Storage>>>();
  if (options.map_weights && CanMap(build)) {
    *in_files = StoragesInFiles(matches, weights, build.dtype);
    build.storage_of = [in_files](const nn::Parameter& parameter) {
      const auto found = in_files->find(parameter.name);
      return found == in_files->end() ? nullptr : found->second;
    };
  }
  Counter counter(options.progress, weights.folder());
  if (!build.device.is_meta()) TESSERA_RETURN_IF_ERROR(counter.Begin(matches, weights));
  FormsOfFiles forms(weights, matches, *shapes, options.quantize, options.map_weights, &counter);
  TESSERA_RETURN_IF_ERROR(forms.AddTo(&build));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, BuildNamed(source, config, build));
  TESSERA_RETURN_IF_ERROR(forms.status());
  in_files->clear();
  std::vector<std::string> fresh;
  if (options.ignore_mismatched_sizes) {
    TESSERA_ASSIGN_OR_RETURN(fresh, LoadBesidesHead(*model, weights, &counter));
  } else {
    TESSERA_RETURN_IF_ERROR(LoadMatching(*model, weights, nullptr, &counter));
  }
  for (size_t i = 0; i < options.adapters.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(LoadAdapter(*model, options.adapters[i], static_cast<int>(i)).status());
  }
  if (!fresh.empty() && options.warn != nullptr) {
    options.warn(Concat(folder_or_preset, ": ", fresh.size() == 1 ? "a tensor" : "tensors",
                        " of the head not there in this shape, initialised: ", QuotedNames(fresh)));
  }
  return model;
}

}  // namespace tessera::models
