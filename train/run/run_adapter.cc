// SPDX-License-Identifier: Apache-2.0
#include "train/run/run_adapter.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "base/file.h"
#include "core/memory_use.h"
#include "dist/store/parameter_shard.h"
#include "models/family.h"
#include "models/hub/adapter_terms.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"
#include "train/run/adapter_start.h"

namespace tessera::train {
namespace {

constexpr char kPrefix[] = "prefix";

bool IsKind(const std::string& adapter) {
  return adapter == "lora" || adapter == "rslora" || adapter == "dora" || adapter == kPrefix;
}

// In PEFT's words, so that its checks are these.
StatusOr<models::AdapterConfig> PrefixOf(const RunConfig& config) {
  nlohmann::json keys = {{"peft_type", "PREFIX_TUNING"},
                         {"num_virtual_tokens", config.pre_seq_len},
                         {"prefix_projection", config.prefix_projection}};
  if (config.prefix_hidden_size) keys["encoder_hidden_size"] = *config.prefix_hidden_size;
  return models::AdapterConfig::FromJson(keys, "adapter");
}

models::ModuleNames NamesOf(const std::string& text) {
  models::ModuleNames names;
  names.all_linear = text == "all-linear";
  if (names.all_linear || text.empty()) return names;
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == ',' ||
           c == '-';
  });
  if (plain) {
    names.names = SplitAtCommas(text);
  } else {
    names.pattern = text;
  }
  return names;
}

// "classifier" of "classifier.out_proj.weight": the head's module, as PEFT's users name it.
std::vector<std::string> HeadModules(const models::Model& model) {
  const models::Family& family = **models::FamilyOf(model.config());
  std::vector<std::string> modules;
  if (family.is_head == nullptr) return modules;
  const MemoryUseScope use(MemoryUse::kShape);
  nn::BuildContext dry;
  dry.device = Device::Meta();
  dry.initialise = false;
  const auto whole = models::BuildModel(model.config(), dry);
  if (!whole.ok()) return modules;
  for (const nn::Parameter* p : (*whole)->Parameters()) {
    if (!family.is_head(p->name)) continue;
    const std::string module = p->name.substr(0, p->name.find('.'));
    if (std::find(modules.begin(), modules.end(), module) == modules.end()) {
      modules.push_back(module);
    }
  }
  return modules;
}

// Of what ZeRO 3 cuts over ranks. Collective over these.
void WithElements(const std::vector<nn::Parameter*>& parameters, const std::function<void()>& use) {
  std::vector<Tensor> tensors;
  for (const nn::Parameter* p : parameters) tensors.push_back(p->tensor);
  const dist::GatheredScope gathered(tensors);
  use();
}

}  // namespace

StatusOr<models::AdapterConfig> AdapterOf(const RunConfig& config, const models::Model& model,
                                          bool new_head) {
  TESSERA_ASSIGN_OR_RETURN(const models::Family* const family, models::FamilyOf(model.config()));
  models::AdapterConfig adapter;
  if (config.adapter == kPrefix) {
    TESSERA_ASSIGN_OR_RETURN(adapter, PrefixOf(config));
  } else if (IsKind(config.adapter)) {
    // In PEFT's words, so that its checks are these.
    const nlohmann::json keys = {{"peft_type", "LORA"},
                                 {"r", config.lora_r},
                                 {"lora_alpha", config.lora_alpha},
                                 {"lora_dropout", config.lora_dropout},
                                 {"use_rslora", config.adapter == "rslora"},
                                 {"use_dora", config.adapter == "dora"},
                                 {"bias", config.adapter_bias}};
    TESSERA_ASSIGN_OR_RETURN(adapter, models::AdapterConfig::FromJson(keys, "adapter"));
    adapter.init = config.init_lora_weights;
    if (!models::AdapterConfig::IsInit(adapter.init)) {
      return InvalidArgument("init_lora_weights is '", adapter.init,
                             "', expected true, false, gaussian, pissa, pissa_niter_K (a number "
                             "below 1000) or olora");
    }
    adapter.target_modules = NamesOf(config.target_modules);
    adapter.exclude_modules = NamesOf(config.exclude_modules);
    adapter.modules_to_save = SplitAtCommas(config.modules_to_save);
    if (adapter.target_modules.empty()) {
      adapter.target_modules.names = family->adapter_targets;
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> missing,
                             models::ModulesNotThere(model, adapter));
    if (!missing.empty()) {
      return InvalidArgument("modules_to_save has '", missing[0],
                             "', which this model does not have");
    }
    if (new_head) {
      for (const std::string& module : HeadModules(model)) {
        if (!adapter.Saves(module)) adapter.modules_to_save.push_back(module);
      }
    }
  } else if (IsDirectory(config.adapter)) {
    TESSERA_ASSIGN_OR_RETURN(adapter, models::AdapterConfig::Read(config.adapter));
    // What a prefix came from is not in its folder: its numbers themselves train.
    if (adapter.prefix) adapter.prefix->prefix_projection = false;
  } else {
    return InvalidArgument("adapter: '", config.adapter,
                           "' is neither lora, rslora, dora, prefix nor a folder");
  }
  adapter.base_model_name_or_path = config.model;
  return adapter;
}

Status DescribePrefix(const RunConfig& config, models::Model& shape) {
  if (!IsKind(config.adapter) && !IsDirectory(config.adapter)) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const models::AdapterConfig adapter,
                           AdapterOf(config, shape, /*new_head=*/false));
  return adapter.prefix ? models::AttachAdapter(shape, adapter).status() : OkStatus();
}

Status TrainAdapter(const RunConfig& config, const models::AdapterConfig& adapter,
                    models::Model& model) {
  TESSERA_ASSIGN_OR_RETURN(const models::AttachedAdapter attached,
                           IsKind(config.adapter)
                               ? models::AttachAdapter(model, adapter, 0, WithElements)
                               : models::LoadAdapter(model, config.adapter));
  // What is saved is the adapter alone, for the model as its folder has it.
  if (!attached.changed.empty()) {
    return InvalidArgument(config.adapter, ": has values of its own for the model's '",
                           attached.changed[0]->name,
                           "'; merge it, and train an adapter of what that gives");
  }
  const bool ties = adapter.ensure_weight_tying && !models::TiesOf(model).empty();
  if (!attached.untied.empty() || ties) {
    return InvalidArgument(
        config.adapter, ": ",
        attached.untied.empty() ? "'ensure_weight_tying'" : "'" + attached.untied[0]->name + "'",
        " parts tied weights of the model, which do not train so");
  }
  if (adapter.StartsFromWeights()) {
    TESSERA_RETURN_IF_ERROR(
        StartFromWeights(adapter.init, static_cast<uint64_t>(config.seed), attached, model));
  }
  models::TrainOnly(model, attached);
  return OkStatus();
}

}  // namespace tessera::train
