#include "train/run_adapter.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/file.h"
#include "models/family.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"

namespace tessera::train {
namespace {

bool IsKind(const std::string& adapter) {
  return adapter == "lora" || adapter == "rslora" || adapter == "dora";
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

}  // namespace

StatusOr<models::AdapterConfig> AdapterOf(const RunConfig& config, const models::Model& model,
                                          bool new_head) {
  TESSERA_ASSIGN_OR_RETURN(const models::Family* const family, models::FamilyOf(model.config()));
  models::AdapterConfig adapter;
  if (IsKind(config.adapter)) {
    // In PEFT's words, so that its checks are these.
    const nlohmann::json keys = {{"peft_type", "LORA"},
                                 {"r", config.lora_r},
                                 {"lora_alpha", config.lora_alpha},
                                 {"lora_dropout", config.lora_dropout},
                                 {"use_rslora", config.adapter == "rslora"},
                                 {"use_dora", config.adapter == "dora"},
                                 {"bias", config.adapter_bias}};
    TESSERA_ASSIGN_OR_RETURN(adapter, models::AdapterConfig::FromJson(keys, "adapter"));
    adapter.target_modules = NamesOf(config.target_modules);
    adapter.exclude_modules = NamesOf(config.exclude_modules);
    adapter.modules_to_save = SplitAtCommas(config.modules_to_save);
    if (adapter.target_modules.empty()) {
      adapter.target_modules.names = family->adapter_targets;
    }
    if (new_head) {
      for (const std::string& module : HeadModules(model)) {
        if (!adapter.Saves(module)) adapter.modules_to_save.push_back(module);
      }
    }
  } else if (IsDirectory(config.adapter)) {
    TESSERA_ASSIGN_OR_RETURN(adapter, models::AdapterConfig::Read(config.adapter));
  } else {
    return InvalidArgument("adapter: '", config.adapter,
                           "' is neither lora, rslora, dora nor a folder");
  }
  adapter.base_model_name_or_path = config.model;
  return adapter;
}

Status TrainAdapter(const RunConfig& config, const models::AdapterConfig& adapter,
                    models::Model& model) {
  TESSERA_ASSIGN_OR_RETURN(const models::AttachedAdapter attached,
                           IsKind(config.adapter) ? models::AttachAdapter(model, adapter)
                                                  : models::LoadAdapter(model, config.adapter));
  models::TrainOnly(model, attached);
  return OkStatus();
}

}  // namespace tessera::train
