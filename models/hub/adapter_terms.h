// SPDX-License-Identifier: Apache-2.0
// Which layers of a model an adapter's configuration means, and what their parameters are called in
// its file.
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

// The module that a parameter is of.
std::string ModuleOf(const std::string& parameter);

// A module's own name, then those that the Hub's files know it by.
std::vector<std::string> NamesOf(const Model& model, const std::string& module);

// Whatever comes of `model`, whichever blocks it has, without memory.
StatusOr<std::unique_ptr<Model>> WholeShape(const Model& model);

// The terms that are wanted of each layer, by the layer's path, of the whole model.
using WantedTerms = std::map<std::string, nn::LowRankConfig>;
// InvalidArgument where the configuration names no layer.
StatusOr<WantedTerms> WantedTermsOf(Model& whole, const AdapterConfig& config);

// What a parameter is called in the adapter's file.
std::string NameInFile(const nn::Parameter& p, const WantedTerms& wanted);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_ADAPTER_TERMS_H_
