// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/json_text.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

constinit const FamilyRegistration* last_registered = nullptr;

// Those of AddFamily, the last one first. They stay.
struct AddedFamily {
  std::shared_ptr<const Family> family;
  const AddedFamily* before;
};
constinit std::atomic<const AddedFamily*> last_added = nullptr;

const Family* FindAdded(std::string_view model_type) {
  for (const AddedFamily* a = last_added; a != nullptr; a = a->before) {
    if (a->family->model_type == model_type) return a->family.get();
  }
  return nullptr;
}

// What was registered before main is checked when it is first asked for.
void CheckDistinct(const std::vector<Family>& families) {
  std::map<std::string, std::string> family_of;  // of each preset
  std::set<std::string> types;
  for (const Family& family : families) {
    TESSERA_CHECK(family.describes != nullptr || types.insert(family.model_type).second, "families",
                  "two families of model_type '", family.model_type, "' are linked in");
    for (const Preset& preset : family.presets) {
      const auto [other, is_new] = family_of.emplace(preset.name, family.model_type);
      TESSERA_CHECK(is_new, "families", "two presets are named '", preset.name, "', of '",
                    other->second, "' and of '", family.model_type, "'");
    }
  }
}

}  // namespace

nlohmann::json PresetConfig(const char* constants,
                            std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  nlohmann::json config = ParseJson(constants, "a preset").value();
  for (const auto& [key, size] : sizes) config[key] = size;
  return config;
}

bool Architecture::Does(Capability capability) const {
  return std::find(capabilities.begin(), capabilities.end(), capability) != capabilities.end();
}

const Architecture* Family::With(Capability capability) const {
  for (const Architecture& architecture : architectures) {
    if (architecture.Does(capability)) return &architecture;
  }
  return nullptr;
}

const Architecture* Family::ArchitectureOf(const nlohmann::json& config) const {
  const auto names = config.find("architectures");
  const bool named = names != config.end() && names->is_array() && !names->empty();
  for (const Architecture& architecture : architectures) {
    if (!named || names->front() == architecture.name) return &architecture;
  }
  return nullptr;
}

FamilyRegistration::FamilyRegistration(Make make)
    : make_(make), before_(std::exchange(last_registered, this)) {}

std::vector<Family> MakeFamilies() {
  std::vector<Family> families;
  for (const auto* r = last_registered; r != nullptr; r = r->before_)
    families.push_back(r->make_());
  std::reverse(families.begin(), families.end());
  CheckDistinct(families);
  return families;
}

const std::vector<Family>& Families() {
  static const auto* const families = new std::vector<Family>(MakeFamilies());
  return *families;
}

const Preset* FindPreset(std::string_view name) {
  for (const Family& family : Families()) {
    for (const Preset& preset : family.presets) {
      if (preset.name == name) return &preset;
    }
  }
  return nullptr;
}

const Family* FindFamily(std::string_view model_type) {
  const Family* found = nullptr;
  for (const Family& family : Families()) {
    if (family.model_type != model_type) continue;
    if (family.describes == nullptr) return &family;
    found = &family;
  }
  return found != nullptr ? found : FindAdded(model_type);
}

Status AddFamily(std::shared_ptr<const Family> family) {
  static constinit std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (FindFamily(family->model_type) != nullptr) {
    return Failure(StatusCode::kAlreadyExists, "model_type '", family->model_type, "' is ",
                   FindAdded(family->model_type) == nullptr ? "built in" : "registered already");
  }
  last_added = new AddedFamily{std::move(family), last_added};
  return OkStatus();
}

StatusOr<const Family*> FamilyOf(const nlohmann::json& config) {
  if (!config.is_object() || !config.contains("model_type") || !config["model_type"].is_string()) {
    return InvalidArgument("the configuration has no \"model_type\"");
  }
  const std::string type = config["model_type"].get<std::string>();
  for (const Family& family : Families()) {
    const bool may = family.model_type == type && family.describes != nullptr;
    if (may && family.describes(config)) return &family;
  }
  if (const Family* family = FindFamily(type)) return family;
  std::string known;
  for (const Family& family : Families()) {
    if (family.describes == nullptr) known += (known.empty() ? "" : ", ") + family.model_type;
  }
  for (const AddedFamily* a = last_added; a != nullptr; a = a->before) {
    known += ", " + a->family->model_type;
  }
  return InvalidArgument("model_type '", type, "' is not known; known are ", known);
}

bool Generates(const Model& model) {
  if (!model.keys_of_block(model.num_blocks() - 1).gives.has(keys::kLogits.name())) return false;
  if (model.num_cache_layers() > 0) return true;
  const StatusOr<const Family*> family = FamilyOf(model.config());
  if (!family.ok()) return false;
  const Architecture* const architecture = (*family)->ArchitectureOf(model.config());
  return architecture != nullptr && architecture->Does(Capability::kNextToken);
}

void UntieWordEmbeddings(nlohmann::json* config) { (*config)["tie_word_embeddings"] = false; }

namespace {

// Whether the family has what a model of it is to be built with.
Status CheckParallelism(const Family& family, const nn::BuildContext& context) {
  const bool splits = context.tensor_parallel != nullptr && context.tensor_parallel->size() > 1;
  const bool stage = context.first_block > 0 || context.end_block >= 0;
  const auto refuse = [&](const char* key, const char* what) {
    return InvalidArgument(key, ": models of ", family.model_type, " ", what, "; leave it out");
  };
  if (stage && !family.has_stages) return refuse("pp", "are not cut into stages");
  if (splits && !family.splits_layers) {
    return refuse("tp", "do not split layers over tensor-parallel ranks");
  }
  if (splits && context.sequence_parallel && !family.shares_sequences) {
    return refuse("sequence_parallel", "do not share sequences out over tensor-parallel ranks");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Model>> BuildModel(const JsonMember& described,
                                            const nn::BuildContext& context) {
  const nlohmann::json& config = *described;
  TESSERA_ASSIGN_OR_RETURN(const Family* const family, FamilyOf(config));
  // transformers 5: layers that differ in their sizes.
  const auto layers = config.find("per_layer_config");
  if (layers != config.end() && !layers->empty()) {
    return InvalidArgument("config of ", family->model_type,
                           ": 'per_layer_config': ", layers->dump(), " is not supported");
  }
  TESSERA_RETURN_IF_ERROR(CheckParallelism(*family, context));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, family->build(config, context));
  std::vector<BlockKeys> blocks;
  for (int i = 0; i < model->num_blocks(); ++i) blocks.push_back(model->keys_of_block(i));
  TESSERA_ASSIGN_OR_RETURN(KeyNames inputs, InputsOf(blocks, "block"));
  model->set_inputs(std::move(inputs));
  return model;
}

}  // namespace tessera::models
