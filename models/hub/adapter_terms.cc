// SPDX-License-Identifier: Apache-2.0
#include "models/hub/adapter_terms.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/memory_use.h"
#include "models/family.h"
#include "models/hub/match_entries.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"

namespace tessera::models {
namespace {

constexpr char kBias[] = ".bias";

const Family& FamilyOfModel(const Model& model) { return **FamilyOf(model.config()); }

bool IsHead(const Model& model, const nn::Module& layer) {
  const Family& family = FamilyOfModel(model);
  return layer.vocabulary_use() == nn::VocabularyUse::kHead ||
         (family.is_head != nullptr && family.is_head(layer.path() + kWeightSuffix));
}

// The last part of "model.embed_tokens".
bool NamesEmbedding(const std::string& module) {
  const std::string last = module.substr(module.rfind('.') + 1);
  return last == "embed_tokens" || last == "lm_head";
}

// With what is tied to the embedding or the head, where the configuration has one of them and
// ensures that they stay tied.
AdapterConfig WithTied(Model& whole, const AdapterConfig& given, int version) {
  AdapterConfig config = given;
  if (!config.ensure_weight_tying) return config;
  std::vector<std::string> tied;
  for (const TiedParameters& parameters : TiesOf(whole)) {
    for (const nn::Parameter* p : parameters) {
      tied.push_back(ModuleNamesInModel(whole, ModuleOf(p->name), version)[0]);
    }
  }
  if (tied.empty()) return config;
  std::vector<std::string>& saved = config.modules_to_save;
  if (std::any_of(saved.begin(), saved.end(), NamesEmbedding)) {
    saved.insert(saved.end(), tied.begin(), tied.end());
    return config;
  }
  ModuleNames& targets = config.target_modules;
  const bool adapts = targets.pattern.empty()
                          ? std::any_of(targets.names.begin(), targets.names.end(), NamesEmbedding)
                          : targets.Match("embed_tokens") || targets.Match("lm_head");
  if (!adapts) return config;
  for (const std::string& name : tied) {
    if (targets.pattern.empty()) {
      targets.names.push_back(name);
    } else {
      targets.pattern = Concat("(?:", targets.pattern, ")|\\Q", name, "\\E");
    }
  }
  return config;
}

nn::LowRankConfig TermOf(const AdapterConfig& config, const std::string& name, bool table) {
  const int64_t rank = config.RankOf(name);
  const auto ranks = static_cast<double>(rank);
  nn::LowRankConfig term = {.rank = rank,
                            .scale = config.ScaleOf(name),
                            .dropout = config.lora_dropout,
                            .magnitude = config.use_dora};
  if (table) {  // A as zeros, B as numbers
    term.b_init = nn::Init::Normal(1);
    if (config.init == "false") term.a_init = nn::Init::Normal(1);
    return term;
  }
  term.subtract_start = config.StartsFromWeights();
  if (config.init == "gaussian") term.a_init = nn::Init::Normal(1.0 / ranks);
  if (config.init == "false") term.b_init = nn::Init::Uniform(1.0 / std::sqrt(ranks));
  return term;
}

// All names of the layers that have terms.
std::set<std::string> AdaptedNames(Model& whole, const AdapterPlan& plan) {
  std::set<std::string> names;
  for (const auto& [path, term] : plan.terms) {
    for (std::string& name : ModuleNamesInModel(whole, path, plan.version)) {
      names.insert(std::move(name));
    }
  }
  return names;
}

Status AddTerms(Model& whole, AdapterPlan* plan) {
  const AdapterConfig& config = plan->config;
  std::vector<std::string> linear, others;
  Status status;
  whole.VisitModules([&](nn::Module& layer) {
    const bool table = layer.looks_up();
    if (layer.linear_layout()) linear.push_back(layer.path());
    const std::vector<std::string> names = ModuleNamesInModel(whole, layer.path(), plan->version);
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return config.Targets(name, layer.linear_layout() && !IsHead(whole, layer));
    });
    if (found == names.end()) return;
    if (!layer.term_layout()) {
      others.push_back(layer.path());
      return;
    }
    status.Update(config.CheckPatterns(*found));
    if (config.Saves(*found)) {
      status.Update(InvalidArgument("the adapter's target_modules and modules_to_save both name '",
                                    *found, "'; a module is adapted or saved whole"));
    }
    if (table && config.StartsFromWeights()) {
      status.Update(InvalidArgument("init_lora_weights is ", config.init,
                                    ", and target_modules name the embedding '", *found,
                                    "', which cannot begin so"));
    }
    plan->terms[layer.path()] = {TermOf(config, *found, table), *layer.term_layout(), table,
                                 *found};
  });
  TESSERA_RETURN_IF_ERROR(status);
  // Layers that have no module here (convolutions).
  for (const nn::Parameter* p : whole.Parameters()) {
    for (const std::string& name : NamesInModel(whole, p->name, plan->version)) {
      if (config.Targets(ModuleOf(name), false)) others.push_back(ModuleOf(name));
    }
  }
  const std::set<std::string> adapted = AdaptedNames(whole, *plan);
  for (const std::string& module : others) {
    if (adapted.count(module) > 0) continue;  // a part of that layer
    return InvalidArgument("the adapter's target_modules name '", module,
                           "', which is neither a linear layer nor an embedding");
  }
  if (!plan->terms.empty()) return OkStatus();
  return InvalidArgument("the adapter's target_modules name no linear layer of this model; it has ",
                         QuotedNames(linear));
}

// Of modules_to_save, and the biases that train.
void AddReplaced(Model& whole, AdapterPlan* plan) {
  const AdapterConfig& config = plan->config;
  const std::set<std::string> adapted = AdaptedNames(whole, *plan);
  whole.VisitParameters([&](const nn::Parameter& p) {
    if (!p.can_train) return;
    std::vector<std::string> names;
    for (const std::string& name : NamesInModel(whole, p.name, plan->version)) {
      const std::string module = ModuleOf(name);
      const bool beside = name.ends_with(kBias) && adapted.count(module) > 0;
      const bool trains = config.Saves(module) || (config.bias == "lora_only" && beside) ||
                          (config.bias == "all" && name.ends_with(kBias));
      if (trains) names.push_back(beside ? OfBaseLayer(name) : name);
    }
    if (!names.empty()) plan->replaced[p.name] = std::move(names);
  });
}

}  // namespace

std::string ModuleOf(const std::string& parameter) {
  return parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
}

std::string OfBaseLayer(const std::string& parameter) {
  const std::string module = ModuleOf(parameter);
  return module + ".base_layer" + parameter.substr(module.size());
}

std::vector<std::string> NamesInModel(const Model& model, const std::string& parameter,
                                      int version) {
  const Family& family = FamilyOfModel(model);
  if (family.names_in_model != nullptr) return family.names_in_model(parameter, version);
  std::vector<std::string> names = {parameter};
  if (family.other_names == nullptr) return names;
  for (std::string& name : family.other_names(parameter)) names.push_back(std::move(name));
  return names;
}

std::vector<std::string> ModuleNamesInModel(const Model& model, const std::string& module,
                                            int version) {
  std::vector<std::string> names = NamesInModel(model, module + kWeightSuffix, version);
  for (std::string& name : names) name = ModuleOf(name);
  return names;
}

std::vector<TiedParameters> TiesOf(Model& model) {
  std::vector<TiedParameters> ties;
  const auto source_of = [](nn::Parameter* p) {
    while (p->tied_to != nullptr) p = p->tied_to;
    return p;
  };
  for (nn::Parameter* p : model.Parameters()) {
    if (p->tied_to == nullptr) continue;
    nn::Parameter* const source = source_of(p);
    const auto found = std::find_if(ties.begin(), ties.end(),
                                    [&](const TiedParameters& t) { return t[0] == source; });
    if (found == ties.end()) {
      ties.push_back({source, p});
    } else {
      found->push_back(p);
    }
  }
  return ties;
}

StatusOr<std::unique_ptr<Model>> WholeShape(const Model& model) {
  const MemoryUseScope use(MemoryUse::kShape);
  nn::BuildContext dry;
  dry.dtype = model.build().dtype;
  dry.device = Device::Meta();
  dry.initialise = false;
  return BuildModel(model.config(), dry);
}

StatusOr<AdapterPlan> PlanOf(Model& whole, const AdapterConfig& config, int version) {
  AdapterPlan plan = {.version = version, .config = config};
  if (plan.config.target_modules.empty()) {
    plan.config.target_modules.names = FamilyOfModel(whole).adapter_targets;
  }
  plan.config = WithTied(whole, plan.config, version);
  TESSERA_RETURN_IF_ERROR(AddTerms(whole, &plan));
  AddReplaced(whole, &plan);
  return plan;
}

StatusOr<AdapterPlan> PlanOf(Model& whole, const AdapterConfig& config) {
  auto plan = PlanOf(whole, config, 4);
  if (plan.ok() || FamilyOfModel(whole).names_in_model == nullptr) return plan;
  auto newer = PlanOf(whole, config, 5);
  return newer.ok() ? std::move(newer) : std::move(plan);
}

}  // namespace tessera::models
