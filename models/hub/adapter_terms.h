// SPDX-License-Identifier: Apache-2.0
// What an adapter's configuration means of a model: the layers that get terms, the parameters that
// it replaces, and what they are called in its file.
#ifndef TESSERA_MODELS_HUB_ADAPTER_TERMS_H_
#define TESSERA_MODELS_HUB_ADAPTER_TERMS_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/hub/adapter_config.h"
#include "models/model.h"
#include "nn/low_rank.h"
#include "nn/module.h"

namespace tessera::models {

// What all names in an adapter's file begin with.
inline constexpr std::string_view kAdapterNamesBegin = "base_model.model.";
// How the parameter that gets a term ends.
inline constexpr char kWeightSuffix[] = ".weight";

// The module that a parameter is of.
std::string ModuleOf(const std::string& parameter);
// A parameter of a layer that has a term: `query.base_layer.bias` of `query.bias`.
std::string OfBaseLayer(const std::string& parameter);

// Names of parameters in transformers' models of version 4 or 5, all that a file may have; then
// the same of modules.
std::vector<std::string> NamesInModel(const Model& model, const std::string& parameter,
                                      int version);
std::vector<std::string> ModuleNamesInModel(const Model& model, const std::string& module,
                                            int version);

// Parameters that share one storage, the one that the others are tied to first.
using TiedParameters = std::vector<nn::Parameter*>;
std::vector<TiedParameters> TiesOf(Model& model);

// Whatever comes of `model`, whichever blocks it has, without memory.
StatusOr<std::unique_ptr<Model>> WholeShape(const Model& model);

struct AdapterPlan {
  struct Term {
    nn::LowRankConfig config;
    LinearLayout layout;
    bool table;        // rows are looked up
    std::string name;  // the layer's in transformers, as the configuration means it
  };
  int version = 4;                         // of transformers, whose names it has
  std::map<std::string, Term> terms = {};  // by the layer's path
  // Names in the file, of each parameter of the model that it replaces; the first is always there.
  std::map<std::string, std::vector<std::string>> replaced = {};
  AdapterConfig config = {};  // with what is tied to what it names, if that is asked for
};

// By the names of one version. InvalidArgument where the configuration names no layer, or one that
// takes no term.
StatusOr<AdapterPlan> PlanOf(Model& whole, const AdapterConfig& config, int version);
// By the first version that has layers of these names.
StatusOr<AdapterPlan> PlanOf(Model& whole, const AdapterConfig& config);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_ADAPTER_TERMS_H_
