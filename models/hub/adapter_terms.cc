// SPDX-License-Identifier: Apache-2.0
#include "models/hub/adapter_terms.h"

#include <algorithm>
#include <cmath>

#include "models/family.h"
#include "models/hub/match_entries.h"
#include "nlohmann/json.hpp"
#include "nn/embedding.h"

namespace tessera::models {
namespace {

constexpr char kWeight[] = ".weight";
constexpr char kBias[] = ".bias";

std::string WithoutEnd(const std::string& text, const std::string& end) {
  return text.substr(0, text.size() - end.size());
}

const Family& FamilyOfModel(const Model& model) { return **FamilyOf(model.config()); }

bool IsHead(const Model& model, const nn::Module& layer) {
  const Family& family = FamilyOfModel(model);
  return layer.vocabulary_use() == nn::VocabularyUse::kHead ||
         (family.is_head != nullptr && family.is_head(layer.path() + kWeight));
}

}  // namespace

std::string ModuleOf(const std::string& parameter) {
  return parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
}

std::vector<std::string> NamesOf(const Model& model, const std::string& module) {
  std::vector<std::string> names = {module};
  const Family& family = FamilyOfModel(model);
  if (family.other_names == nullptr) return names;
  for (const std::string& name : family.other_names(module + kWeight)) {
    names.push_back(WithoutEnd(name, kWeight));
  }
  return names;
}

StatusOr<std::unique_ptr<Model>> WholeShape(const Model& model) {
  nn::BuildContext dry;
  dry.dtype = model.build().dtype;
  dry.device = Device::Meta();
  dry.initialise = false;
  return BuildModel(model.config(), dry);
}

StatusOr<WantedTerms> WantedTermsOf(Model& whole, const AdapterConfig& given) {
  WantedTerms wanted;
  AdapterConfig config = given;
  if (config.target_modules.empty()) {
    config.target_modules.names = FamilyOfModel(whole).adapter_targets;
  }
  std::vector<std::string> layers;
  Status status;
  whole.VisitModules([&](nn::Module& layer) {
    if (!layer.linear_layout()) return;
    layers.push_back(layer.path());
    const std::vector<std::string> names = NamesOf(whole, layer.path());
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return config.Targets(name, !IsHead(whole, layer));
    });
    if (found == names.end()) return;
    status.Update(config.CheckPatterns(*found));
    const int64_t rank = config.RankOf(*found);
    wanted[layer.path()] = {
        .rank = rank,
        .scale = config.ScaleOf(*found),
        .dropout = config.lora_dropout,
        .magnitude = config.use_dora,
        .a_init = config.init == "gaussian" ? nn::Init::Normal(1.0 / static_cast<double>(rank))
                                            : nn::Init(),
        .b_init = config.init == "false"
                      ? nn::Init::Uniform(1.0 / std::sqrt(static_cast<double>(rank)))
                      : nn::Init(),
        .subtract_start = config.StartsFromWeights()};
  });
  TESSERA_RETURN_IF_ERROR(status);
  if (wanted.empty()) {
    return InvalidArgument(
        "the adapter's target_modules name no linear layer of this model; it has ",
        QuotedNames(layers));
  }
  return wanted;
}

std::string NameInFile(const nn::Parameter& p, const WantedTerms& wanted) {
  const std::string module = ModuleOf(p.name);
  const bool adapted = p.name.ends_with(kBias) && wanted.count(module) > 0;
  return std::string(kAdapterNamesBegin) + (adapted ? module + ".base_layer.bias" : p.name);
}

}  // namespace tessera::models
