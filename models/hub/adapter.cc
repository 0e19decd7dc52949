// SPDX-License-Identifier: Apache-2.0
#include "models/hub/adapter.h"

#include <algorithm>
#include <map>
#include <set>

#include "autograd/autograd.h"
#include "base/file.h"
#include "models/hub/adapter_terms.h"
#include "models/hub/match_entries.h"
#include "models/hub/weight_file.h"

namespace tessera::models {
namespace {

constexpr char kWeight[] = ".weight";
constexpr char kBias[] = ".bias";

// Of modules_to_save, and the biases that train.
bool Replaces(const AdapterConfig& config, const WantedTerms& wanted, const nn::Parameter& p) {
  if (!p.can_train) return false;
  if (config.Saves(ModuleOf(p.name))) return true;
  if (!p.name.ends_with(kBias)) return false;
  return config.bias == "all" || (config.bias == "lora_only" && wanted.count(ModuleOf(p.name)) > 0);
}

Status CheckReplaced(Model& whole, const AdapterConfig& config, const WantedTerms& wanted,
                     int adapter) {
  std::set<const nn::Parameter*> tied;
  bool any = false;
  Status status;
  whole.VisitParameters([&](nn::Parameter& p) {
    if (p.tied_to != nullptr) tied.insert({&p, p.tied_to});
  });
  whole.VisitParameters([&](nn::Parameter& p) {
    if (!Replaces(config, wanted, p)) return;
    any = true;
    if (tied.count(&p) > 0) {
      status.Update(InvalidArgument("the adapter's modules_to_save name '", ModuleOf(p.name),
                                    "', whose weight is tied to another module's; such a model "
                                    "cannot train one of them alone"));
    }
  });
  if (any && adapter > 0) {
    status.Update(
        InvalidArgument("the adapter has modules of its own (modules_to_save, bias); only "
                        "the first one of a model may"));
  }
  for (const std::string& name : config.modules_to_save) {
    bool found = false;
    whole.VisitModules([&](nn::Module& m) {
      found = found || m.path() == name || m.path().ends_with("." + name);
    });
    if (!found) {
      status.Update(InvalidArgument("the adapter's modules_to_save name '", name,
                                    "', which this model does not have"));
    }
  }
  return status;
}

AttachedAdapter Attach(Model& model, const AdapterConfig& config, const WantedTerms& wanted,
                       int adapter) {
  AttachedAdapter attached;
  std::vector<nn::Module*> layers;  // terms are children that come to them
  model.VisitModules([&](nn::Module& layer) {
    if (layer.linear_layout() && wanted.count(layer.path()) > 0) layers.push_back(&layer);
  });
  model.VisitParameters([&](nn::Parameter& p) {
    if (Replaces(config, wanted, p)) attached.replaced.push_back(&p);
  });
  for (nn::Module* layer : layers) {
    nn::LowRankTerm& term =
        nn::AdaptedWeight::Of(*layer).AddTerm(adapter, wanted.at(layer->path()));
    attached.terms.push_back({&term, layer->path()});
  }
  return attached;
}

// Bytes of its own, with which it can train, for a parameter that has a file's.
void MakeWritable(const Model& model, nn::Parameter* p) {
  if (!p->tensor.storage()->read_only()) return;
  p->tensor = CastCopy(p->tensor, p->tensor.dtype());
  nn::LetTrain(*p, model.build());
}

// --- Files ---------------------------------------------------------------------------------------

// `lora_A.1.weight` of a second adapter is `lora_A.weight` in its file.
std::string WithoutNumber(const std::string& name, int adapter) {
  if (adapter == 0) return name;
  const std::string number = "." + std::to_string(adapter);
  const size_t at = name.rfind(number);
  return name.substr(0, at) + name.substr(at + number.size());
}

// The parameters of the whole model by the names that a file may have for them.
std::map<std::string, std::string> ParametersByNameInFile(Model& whole,
                                                          const AttachedAdapter& adapter,
                                                          const WantedTerms& wanted, int number) {
  std::map<std::string, std::string> by_name;
  for (nn::Parameter* p : ParametersOf(adapter)) {
    const std::string name =
        WithoutNumber(NameInFile(*p, wanted), number).substr(kAdapterNamesBegin.size());
    by_name[name] = p->name;
    // The module's other names, in front of what comes behind it.
    for (const auto& term : adapter.terms) {
      if (!name.starts_with(term.module + ".")) continue;
      for (const std::string& other : NamesOf(whole, term.module)) {
        by_name.emplace(other + name.substr(term.module.size()), p->name);
      }
    }
  }
  return by_name;
}

// An entry for each of the parameters, and none left over.
StatusOr<std::map<std::string, std::string>> EntriesOf(
    const WeightFile& file, const std::map<std::string, std::string>& by_name,
    const std::string& source) {
  std::map<std::string, std::string> entry_of;
  std::vector<std::string> unknown, missing;
  for (const WeightEntry& entry : file.entries()) {
    std::string name = entry.name;
    if (name.starts_with(kAdapterNamesBegin)) name.erase(0, kAdapterNamesBegin.size());
    // Beside all biases PEFT writes those of the modules that an adapter replaces, too.
    if (name.find(".original_module.") != std::string::npos) continue;
    const std::string wrapper = ".modules_to_save";
    const size_t wrapped = name.find(wrapper + ".");
    if (wrapped != std::string::npos) name.erase(wrapped, wrapper.size());
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      unknown.push_back(entry.name);
    } else {
      entry_of[found->second] = entry.name;
    }
  }
  for (const auto& [name, parameter] : by_name) {
    if (entry_of.count(parameter) == 0) missing.push_back(parameter);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  if (!unknown.empty()) {
    return InvalidArgument(source, ": this model has no place for ", QuotedNames(unknown),
                           "; the adapter is for another one");
  }
  if (!missing.empty()) return InvalidArgument(source, ": missing are ", QuotedNames(missing));
  return entry_of;
}

void Write(const Model& model, nn::Parameter* p, const Tensor& whole) {
  MakeWritable(model, p);
  const auto write = [&] {
    const Tensor cast = CopyTo(CastCopy(whole, p->tensor.dtype()), p->tensor.device());
    CopyGlobalToLocal(p->placement, cast, p->tensor.Detach());
  };
  if (model.build().around_loading) {
    model.build().around_loading(*p, write);
  } else {
    write();
  }
}

StatusOr<WeightFile> OpenWeights(const std::string& folder) {
  std::string path = JoinPath(folder, std::string(kAdapterWeightsName));
  if (!PathExists(path)) path = JoinPath(folder, "adapter_model.bin");
  if (!PathExists(path)) {
    return NotFound("'", folder, "' holds no weights of an adapter (", kAdapterWeightsName, ")");
  }
  return WeightFile::Open(path);
}

// A folder's numbers, whatever they came from when they were trained.
StatusOr<AttachedAdapter> LoadPrefix(Model& model, const std::string& folder,
                                     PrefixTuningConfig config, int adapter) {
  config.prefix_projection = false;
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  const auto held = PrefixConfigFor(*whole, config);
  if (!held.ok()) return Failure(held.status().code(), folder, ": ", Message(held.status()));
  TESSERA_ASSIGN_OR_RETURN(const WeightFile file, OpenWeights(folder));
  TESSERA_ASSIGN_OR_RETURN(const Tensor numbers, ReadPrefix(file, *held));
  AttachedAdapter attached;
  attached.prefix = AttachPrefix(model, *whole, *held, adapter);
  if (model.build().device.is_meta()) return attached;
  SpreadPrefix(numbers, attached.prefix,
               [&](nn::Parameter* p, const Tensor& values) { Write(model, p, values); });
  return attached;
}

// Quantised weights are multiplied by, and cannot be changed or taken apart.
Status CheckHasNumbers(Model& model, const std::string& name) {
  const nn::Parameter* const p = model.FindParameter(name);
  if (p == nullptr || p->tensor.device().is_meta() == model.build().device.is_meta()) {
    return OkStatus();
  }
  return InvalidArgument("'", name, "' is quantised; what the adapter does needs its own numbers");
}

}  // namespace

Status CheckWeightsTrain(Model& model, const std::string& where, const std::string& how) {
  for (const nn::Parameter* p : model.Parameters()) {
    if (nn::IsDense(*p)) continue;
    return InvalidArgument(where, ": '", p->name,
                           "' is quantised and cannot train; train an adapter (", how, ")");
  }
  return OkStatus();
}

StatusOr<AttachedAdapter> AttachAdapter(Model& model, const AdapterConfig& config, int adapter,
                                        const WithElements& with_elements) {
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  if (config.prefix) {
    TESSERA_ASSIGN_OR_RETURN(const auto prefix, PrefixConfigFor(*whole, *config.prefix));
    AttachedAdapter attached;
    attached.prefix = AttachPrefix(model, *whole, prefix, adapter);
    return attached;
  }
  TESSERA_ASSIGN_OR_RETURN(const WantedTerms wanted, WantedTermsOf(*whole, config));
  TESSERA_RETURN_IF_ERROR(CheckReplaced(*whole, config, wanted, adapter));
  if (config.use_dora && model.build().around_loading && with_elements == nullptr) {
    return InvalidArgument(
        "use_dora begins with the norms of weights, which a model whose parameters are cut over "
        "ranks (zero 3) does not have in one place");
  }
  if (config.use_dora && config.StartsFromWeights()) {
    return InvalidArgument("init_lora_weights is ", config.init,
                           ", which does not go with use_dora");
  }
  if (config.use_dora || config.StartsFromWeights()) {
    for (const auto& [module, term] : wanted) {
      TESSERA_RETURN_IF_ERROR(CheckHasNumbers(model, module + kWeight));
    }
  }
  AttachedAdapter attached = Attach(model, config, wanted, adapter);
  for (nn::Parameter* p : attached.replaced) {
    TESSERA_RETURN_IF_ERROR(CheckHasNumbers(model, p->name));
    MakeWritable(model, p);
  }
  for (const AttachedAdapter::Term& term : attached.terms) {
    nn::Parameter* const weight = model.FindParameter(term.module + kWeight);
    const auto begin = [&] { term.term->Begin(*weight); };
    if (!config.use_dora || with_elements == nullptr) {
      begin();
      continue;
    }
    // The factors, which are matrices; magnitudes are written, which cut ones are by themselves.
    std::vector<nn::Parameter*> read = {weight};
    for (const auto& p : term.term->own_parameters()) {
      if (p->placement.global_shape().ndim() == 2) read.push_back(p.get());
    }
    with_elements(read, begin);
  }
  return attached;
}

std::vector<nn::Parameter*> ParametersOf(const AttachedAdapter& adapter) {
  std::vector<nn::Parameter*> parameters;
  for (const auto& term : adapter.terms) {
    for (const auto& p : term.term->own_parameters()) {
      if (p->can_train) parameters.push_back(p.get());
    }
  }
  parameters.insert(parameters.end(), adapter.replaced.begin(), adapter.replaced.end());
  const std::vector<nn::Parameter*>& prefix = adapter.prefix.parameters;
  parameters.insert(parameters.end(), prefix.begin(), prefix.end());
  return parameters;
}

void TrainOnly(Model& model, const AttachedAdapter& adapter) {
  const std::vector<nn::Parameter*> own = ParametersOf(adapter);
  const std::set<nn::Parameter*> trains(own.begin(), own.end());
  model.VisitParameters([&](nn::Parameter& p) {
    if (trains.count(&p) == 0) DropGrad(p.tensor);
  });
}

StatusOr<AdapterFolder> AdapterFolder::Open(const std::string& folder, const Model& model,
                                            int adapter) {
  AdapterFolder opened;
  TESSERA_ASSIGN_OR_RETURN(opened.config_, AdapterConfig::Read(folder));
  if (opened.config_.prefix) {
    return InvalidArgument(folder,
                           ": prefix tuning changes no weight of the model, and cannot be "
                           "merged with it");
  }
  TESSERA_ASSIGN_OR_RETURN(WeightFile file, OpenWeights(folder));
  const std::string path = file.path();
  opened.file_ = std::make_shared<const WeightFile>(std::move(file));
  opened.suffix_ = adapter == 0 ? "" : Concat(".", adapter);
  // The whole model, so that every stage of a pipeline refuses what one of them would.
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  auto wanted = WantedTermsOf(*whole, opened.config_);
  if (wanted.ok()) {
    const Status replaced = CheckReplaced(*whole, opened.config_, *wanted, adapter);
    if (!replaced.ok()) wanted = replaced;
  }
  if (!wanted.ok()) {
    return Failure(wanted.status().code(), folder, ": ", Message(wanted.status()));
  }
  whole->VisitModules([&](nn::Module& layer) {
    const auto found = wanted->find(layer.path());
    if (found == wanted->end() || !layer.linear_layout()) return;
    opened.terms_[layer.path()] = {*layer.linear_layout(), found->second};
  });
  const AttachedAdapter shapes = Attach(*whole, opened.config_, *wanted, adapter);
  TESSERA_ASSIGN_OR_RETURN(
      opened.entry_of_,
      EntriesOf(*opened.file_, ParametersByNameInFile(*whole, shapes, *wanted, adapter), path));
  for (const nn::Parameter* p : ParametersOf(shapes)) {
    TESSERA_RETURN_IF_ERROR(
        opened.file_->CheckShape(opened.entry_of_.at(p->name), p->placement.global_shape()));
  }
  return opened;
}

bool AdapterFolder::Changes(const std::string& parameter) const {
  return entry_of_.count(parameter) > 0 ||
         (parameter.ends_with(kWeight) && terms_.count(ModuleOf(parameter)) > 0);
}

StatusOr<Tensor> AdapterFolder::Read(const std::string& parameter) const {
  return file_->Read(entry_of_.at(parameter));
}

StatusOr<Tensor> AdapterFolder::Merged(const nn::Parameter& parameter, const Tensor& whole) const {
  if (entry_of_.count(parameter.name) > 0) return Read(parameter.name);
  const std::string layer = ModuleOf(parameter.name);
  const auto term = terms_.find(layer);
  if (term == terms_.end() || parameter.name != layer + kWeight) return whole;
  TESSERA_ASSIGN_OR_RETURN(const Tensor a, Read(layer + ".lora_A" + suffix_ + kWeight));
  TESSERA_ASSIGN_OR_RETURN(const Tensor b, Read(layer + ".lora_B" + suffix_ + kWeight));
  Tensor magnitude;
  if (term->second.config.magnitude) {
    TESSERA_ASSIGN_OR_RETURN(magnitude, Read(layer + ".lora_magnitude_vector" + suffix_));
  }
  return nn::MergedWeight(whole, term->second.layout, a, b, term->second.config.scale, magnitude);
}

StatusOr<AttachedAdapter> LoadAdapter(Model& model, const std::string& folder, int adapter) {
  TESSERA_ASSIGN_OR_RETURN(const AdapterConfig config, AdapterConfig::Read(folder));
  if (config.prefix) return LoadPrefix(model, folder, *config.prefix, adapter);
  TESSERA_ASSIGN_OR_RETURN(const AdapterFolder opened, AdapterFolder::Open(folder, model, adapter));
  WantedTerms wanted;
  for (const auto& [layer, term] : opened.terms_) wanted[layer] = term.config;
  AttachedAdapter attached = Attach(model, opened.config_, wanted, adapter);
  if (model.build().device.is_meta()) return attached;
  for (nn::Parameter* p : ParametersOf(attached)) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor whole, opened.Read(p->name));
    Write(model, p, whole);
  }
  return attached;
}

}  // namespace tessera::models
