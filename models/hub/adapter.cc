// SPDX-License-Identifier: Apache-2.0
#include "models/hub/adapter.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "autograd/autograd.h"
#include "base/file.h"
#include "models/hub/adapter_folder.h"
#include "models/hub/adapter_terms.h"
#include "models/hub/match_entries.h"
#include "models/hub/weight_file.h"

namespace tessera::models {
namespace {

// A weight that trains while others that are tied to it do not.
Status CheckTrainsAlone(Model& whole, const AdapterPlan& plan) {
  const std::vector<TiedParameters> ties = TiesOf(whole);
  for (const TiedParameters& tied : ties) {
    for (const nn::Parameter* p : tied) {
      if (plan.replaced.count(p->name) == 0) continue;
      return InvalidArgument("the adapter's modules_to_save name '", ModuleOf(p->name),
                             "', whose weight is tied to another module's; such a model cannot "
                             "train one of them alone");
    }
  }
  if (!plan.config.ensure_weight_tying || ties.empty()) return OkStatus();
  return InvalidArgument("ensure_weight_tying: matrices that two modules share do not train");
}

Status CheckReplaced(const AdapterPlan& plan, int adapter) {
  if (plan.replaced.empty() || adapter == 0) return OkStatus();
  return InvalidArgument(
      "the adapter has modules of its own (modules_to_save, bias); only the "
      "first one of a model may");
}

AttachedAdapter Attach(Model& model, const AdapterPlan& plan, int adapter) {
  AttachedAdapter attached;
  attached.version = plan.version;
  std::vector<nn::Module*> layers;  // terms are children that come to them
  model.VisitModules([&](nn::Module& layer) {
    if (layer.term_layout() && plan.terms.count(layer.path()) > 0) layers.push_back(&layer);
  });
  model.VisitParameters([&](nn::Parameter& p) {
    if (plan.replaced.count(p.name) > 0) attached.replaced.push_back(&p);
  });
  for (nn::Module* layer : layers) {
    nn::LowRankTerm& term =
        nn::AdaptedWeight::Of(*layer).AddTerm(adapter, plan.terms.at(layer->path()).config);
    attached.terms.push_back({&term, layer->path()});
  }
  return attached;
}

// Numbers of its own, with which it can train.
void GiveNumbers(const Model& model, nn::Parameter* p) {
  if (nn::IsDense(*p)) {
    p->tensor = CastCopy(p->tensor, p->tensor.dtype());
  } else {
    p->form = nullptr;
    p->tensor = Empty(p->placement.local_shape(), model.build().dtype, model.build().device);
  }
  nn::LetTrain(*p, model.build());
}

// For a parameter that has a file's bytes, or is quantised.
void MakeWritable(const Model& model, nn::Parameter* p) {
  if (!nn::IsDense(*p) || p->tensor.storage()->read_only()) GiveNumbers(model, p);
}

// Takes those that are replaced from what they are tied to; what is left of it stays tied. Returns
// the former.
std::vector<nn::Parameter*> Untie(Model& model, const AdapterPlan& plan) {
  std::vector<nn::Parameter*> untied;
  for (const TiedParameters& tied : TiesOf(model)) {
    std::vector<nn::Parameter*> rest;
    for (nn::Parameter* p : tied) {
      (plan.replaced.count(p->name) > 0 ? untied : rest).push_back(p);
    }
    if (rest.size() == tied.size()) continue;
    for (size_t i = 0; i < rest.size(); ++i) rest[i]->tied_to = i == 0 ? nullptr : rest[0];
  }
  for (nn::Parameter* p : untied) {
    p->tied_to = nullptr;
    GiveNumbers(model, p);
  }
  return untied;
}

// --- Files ---------------------------------------------------------------------------------------

// `lora_A.1.weight` of a second adapter is `lora_A.weight` in its file.
std::string WithoutNumber(const std::string& name, int adapter) {
  if (adapter == 0) return name;
  const std::string number = "." + std::to_string(adapter);
  const size_t at = name.rfind(number);
  return name.substr(0, at) + name.substr(at + number.size());
}

using NamesInFile = std::map<std::string, std::string>;  // to the parameter's own

// What the adapter has, of the whole model.
NamesInFile OwnNames(Model& whole, const AttachedAdapter& adapter, const AdapterPlan& plan,
                     int number) {
  NamesInFile by_name;
  for (const AttachedAdapter::Term& term : adapter.terms) {
    for (const auto& p : term.term->own_parameters()) {
      if (!p->can_train) continue;
      const std::string end = WithoutNumber(p->name, number).substr(term.module.size());
      for (const std::string& name : ModuleNamesInModel(whole, term.module, plan.version)) {
        // A name of its own goes before another's second one.
        if (name == term.module) by_name[name + end] = p->name;
        by_name.emplace(name + end, p->name);
      }
    }
  }
  for (const auto& [parameter, names] : plan.replaced) {
    for (const std::string& name : names) by_name.emplace(name, parameter);
  }
  return by_name;
}

// What a file may have of the model that it goes on, beside or below its terms.
NamesInFile BaseNames(Model& whole, const AdapterPlan& plan) {
  NamesInFile by_name;
  for (const nn::Parameter* p : whole.Parameters()) {
    std::vector<std::string> names = NamesInModel(whole, p->name, plan.version);
    names.push_back(p->name);
    for (const std::string& name : names) {
      if (plan.config.Saves(ModuleOf(name))) continue;
      by_name.emplace(name, p->name);
      by_name.emplace(OfBaseLayer(name), p->name);
    }
  }
  return by_name;
}

// Without what PEFT puts into names of modules that are saved: `.modules_to_save`, and, beside all
// biases, the adapter's name behind it.
std::vector<std::string> PlainNames(std::string name) {
  if (name.starts_with(kAdapterNamesBegin)) name.erase(0, kAdapterNamesBegin.size());
  const std::string wrapper = ".modules_to_save";
  const size_t wrapped = name.find(wrapper + ".");
  if (wrapped == std::string::npos) return {name};
  name.erase(wrapped, wrapper.size());
  std::string without = name;
  without.erase(wrapped, without.find('.', wrapped + 1) - wrapped);
  return {name, without};
}

struct EntriesFound {
  std::map<std::string, std::string> own;   // by the parameter's name
  std::map<std::string, std::string> base;  // the same
};

// An entry for each of the adapter's parameters, and none that is not the model's either.
StatusOr<EntriesFound> FindEntries(const WeightFile& file, const NamesInFile& own,
                                   const NamesInFile& base, const std::string& source) {
  EntriesFound found;
  std::vector<std::string> unknown, missing;
  const auto find = [](const NamesInFile& by_name, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto at = by_name.find(name);
      if (at != by_name.end()) return at->second;
    }
    return std::string();
  };
  for (const WeightEntry& entry : file.entries()) {
    // Beside all biases PEFT writes those of the modules that an adapter replaces, too.
    if (entry.name.find(".original_module.") != std::string::npos) continue;
    const std::vector<std::string> names = PlainNames(entry.name);
    const std::string parameter = find(own, names);
    if (!parameter.empty()) {
      found.own[parameter] = entry.name;
      continue;
    }
    const std::string of_base = find(base, names);
    if (of_base.empty()) {
      unknown.push_back(entry.name);
    } else {
      found.base[of_base] = entry.name;
    }
  }
  for (const auto& [name, parameter] : own) {
    if (found.own.count(parameter) == 0) missing.push_back(parameter);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  if (!unknown.empty()) {
    return InvalidArgument(source, ": this model has no place for ", QuotedNames(unknown),
                           "; the adapter is for another one");
  }
  if (!missing.empty()) return InvalidArgument(source, ": missing are ", QuotedNames(missing));
  return found;
}

// What the file has of one weight, it has of all that are tied to it.
void SpreadOverTied(Model& whole, const AdapterPlan& plan,
                    std::map<std::string, std::string>* base) {
  for (const TiedParameters& tied : TiesOf(whole)) {
    const auto held = std::find_if(
        tied.begin(), tied.end(), [&](const nn::Parameter* p) { return base->count(p->name) > 0; });
    if (held == tied.end()) continue;
    const std::string entry = base->at((*held)->name);
    for (const nn::Parameter* p : tied) {
      if (plan.replaced.count(p->name) == 0) base->emplace(p->name, entry);
    }
  }
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

bool HoldsValues(const nn::Parameter& p, const Tensor& whole) {
  if (!nn::IsDense(p)) return false;
  const Tensor part = Empty(p.placement.local_shape(), p.tensor.dtype());
  CopyGlobalToLocal(p.placement, CastCopy(whole, part.dtype()), part);
  const Tensor held = CopyTo(p.tensor.Detach(), Device::Cpu()).ContiguousCopy();
  return std::memcmp(part.raw_data(), held.raw_data(), part.nbytes()) == 0;
}

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
  TESSERA_ASSIGN_OR_RETURN(const AdapterPlan plan, PlanOf(*whole, config));
  TESSERA_RETURN_IF_ERROR(CheckReplaced(plan, adapter));
  TESSERA_RETURN_IF_ERROR(CheckTrainsAlone(*whole, plan));
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
    for (const auto& [module, term] : plan.terms) {
      TESSERA_RETURN_IF_ERROR(CheckHasNumbers(model, module + kWeightSuffix));
    }
  }
  AttachedAdapter attached = Attach(model, plan, adapter);
  for (nn::Parameter* p : attached.replaced) {
    TESSERA_RETURN_IF_ERROR(CheckHasNumbers(model, p->name));
    MakeWritable(model, p);
  }
  for (const AttachedAdapter::Term& term : attached.terms) {
    nn::Parameter* const weight = model.FindParameter(term.module + kWeightSuffix);
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

StatusOr<std::vector<std::string>> ModulesNotThere(const Model& model,
                                                   const AdapterConfig& config) {
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  std::vector<std::string> missing;
  for (const std::string& name : config.modules_to_save) {
    AdapterConfig one;
    one.modules_to_save = {name};
    bool found = false;
    for (const nn::Parameter* p : whole->Parameters()) {
      for (const int version : {4, 5}) {
        for (const std::string& of : NamesInModel(*whole, p->name, version)) {
          found = found || one.Saves(ModuleOf(of));
        }
      }
    }
    if (!found) missing.push_back(name);
  }
  return missing;
}

StatusOr<AdapterFolder> AdapterFolder::Open(const std::string& folder, const Model& model,
                                            int adapter) {
  AdapterFolder opened;
  opened.adapter_ = adapter;
  TESSERA_ASSIGN_OR_RETURN(opened.config_, AdapterConfig::Read(folder));
  if (opened.config_.prefix) {
    return InvalidArgument(folder,
                           ": prefix tuning changes no weight of the model, and cannot be "
                           "merged with it");
  }
  TESSERA_ASSIGN_OR_RETURN(WeightFile file, OpenWeights(folder));
  opened.file_ = std::make_shared<const WeightFile>(std::move(file));
  // By the names of the version that the adapter is from. What is said of the first one counts,
  // unless the second got further.
  Status problem = opened.ReadBy(4, folder, model);
  if (!problem.ok()) {
    AdapterFolder newer = opened;
    const Status second = newer.ReadBy(5, folder, model);
    if (second.ok()) return newer;
    return opened.plan_.terms.empty() && !newer.plan_.terms.empty() ? second : problem;
  }
  return opened;
}

Status AdapterFolder::ReadBy(int version, const std::string& folder, const Model& model) {
  // The whole model, so that every stage of a pipeline refuses what one of them would.
  TESSERA_ASSIGN_OR_RETURN(const auto whole, WholeShape(model));
  auto plan = PlanOf(*whole, config_, version);
  if (plan.ok()) {
    const Status replaced = CheckReplaced(*plan, adapter_);
    if (!replaced.ok()) plan = replaced;
  }
  if (!plan.ok()) return Failure(plan.status().code(), folder, ": ", Message(plan.status()));
  plan_ = *std::move(plan);
  const NamesInFile base = BaseNames(*whole, plan_);
  const AttachedAdapter shapes = Attach(*whole, plan_, adapter_);
  TESSERA_ASSIGN_OR_RETURN(
      EntriesFound entries,
      FindEntries(*file_, OwnNames(*whole, shapes, plan_, adapter_), base, file_->path()));
  SpreadOverTied(*whole, plan_, &entries.base);
  entry_of_ = std::move(entries.own);
  base_entry_of_ = std::move(entries.base);
  for (const nn::Parameter* p : whole->Parameters()) {
    for (const auto* found : {&entry_of_, &base_entry_of_}) {
      const auto entry = found->find(p->name);
      if (entry == found->end()) continue;
      TESSERA_RETURN_IF_ERROR(file_->CheckShape(entry->second, p->placement.global_shape()));
    }
  }
  return OkStatus();
}

bool AdapterFolder::Changes(const std::string& parameter) const {
  return base_entry_of_.count(parameter) > 0 || ChangesAlone(parameter);
}

bool AdapterFolder::ChangesAlone(const std::string& parameter) const {
  return entry_of_.count(parameter) > 0 ||
         (parameter.ends_with(kWeightSuffix) && plan_.terms.count(ModuleOf(parameter)) > 0);
}

StatusOr<Tensor> AdapterFolder::Read(const std::string& parameter) const {
  const auto own = entry_of_.find(parameter);
  return file_->Read(own != entry_of_.end() ? own->second : base_entry_of_.at(parameter));
}

StatusOr<Tensor> AdapterFolder::Merged(const nn::Parameter& parameter, const Tensor& whole) const {
  const bool held = entry_of_.count(parameter.name) > 0 || base_entry_of_.count(parameter.name) > 0;
  Tensor base = whole;
  if (held) {
    TESSERA_ASSIGN_OR_RETURN(base, Read(parameter.name));
  }
  const std::string layer = ModuleOf(parameter.name);
  const auto found = plan_.terms.find(layer);
  if (found == plan_.terms.end() || parameter.name != layer + kWeightSuffix) return base;
  const Term& term = found->second;
  const nn::LowRankNames names(term.table, adapter_);
  TESSERA_ASSIGN_OR_RETURN(const Tensor a, Read(Concat(layer, ".", names.a)));
  TESSERA_ASSIGN_OR_RETURN(const Tensor b, Read(Concat(layer, ".", names.b)));
  Tensor magnitude;
  if (term.config.magnitude) {
    TESSERA_ASSIGN_OR_RETURN(magnitude, Read(Concat(layer, ".", names.magnitude)));
  }
  return nn::MergedWeight(base, term.layout, a, b, term.config.scale, magnitude);
}

Status AdapterFolder::WriteBase(Model& model, const std::string& folder,
                                AttachedAdapter* attached) const {
  std::vector<nn::Parameter*> changed;
  for (const auto& [name, entry] : base_entry_of_) {
    nn::Parameter* const p = model.FindParameter(name);
    if (p == nullptr) continue;
    TESSERA_ASSIGN_OR_RETURN(const Tensor whole, file_->Read(entry));
    // ZeRO-3 has the values in no one place.
    if (!model.build().around_loading && HoldsValues(*p, whole)) continue;
    if (adapter_ > 0) {
      return InvalidArgument(folder, ": '", entry, "' is not the model's '", name,
                             "'; only the first adapter of a model may have a base of its own");
    }
    TESSERA_RETURN_IF_ERROR(CheckHasNumbers(model, name));
    Write(model, p, whole);
    changed.push_back(p);
  }
  attached->changed = std::move(changed);
  return OkStatus();
}

StatusOr<AttachedAdapter> LoadAdapter(Model& model, const std::string& folder, int adapter) {
  TESSERA_ASSIGN_OR_RETURN(const AdapterConfig config, AdapterConfig::Read(folder));
  if (config.prefix) return LoadPrefix(model, folder, *config.prefix, adapter);
  TESSERA_ASSIGN_OR_RETURN(const AdapterFolder opened, AdapterFolder::Open(folder, model, adapter));
  const bool dry = model.build().device.is_meta();
  AttachedAdapter base;
  if (!dry) TESSERA_RETURN_IF_ERROR(opened.WriteBase(model, folder, &base));
  const std::vector<nn::Parameter*> untied = Untie(model, opened.plan_);
  AttachedAdapter attached = Attach(model, opened.plan_, adapter);
  attached.changed = std::move(base.changed);
  attached.untied = untied;
  if (dry) return attached;
  for (nn::Parameter* p : ParametersOf(attached)) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor whole, opened.Read(p->name));
    Write(model, p, whole);
  }
  return attached;
}

}  // namespace tessera::models
