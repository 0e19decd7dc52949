// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/fsdp_keys.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "nlohmann/json.hpp"
#include "train/config/comma_list.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

// A setting by its name or its number, as PyTorch's enumerations have it: "1" is the first.
StatusOr<std::string> Chosen(const Json& value, const std::vector<std::string>& names) {
  const std::string text =
      absl::AsciiStrToUpper(value.is_string() ? value.get<std::string>() : Printed(value));
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i] || text == std::to_string(i + 1)) return names[i];
  }
  return InvalidArgument("is ", Printed(value), ", expected one of ", absl::StrJoin(names, ", "));
}

StatusOr<Json> StageOf(const Json& value) {
  TESSERA_ASSIGN_OR_RETURN(const std::string name,
                           Chosen(value, {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                          "HYBRID_SHARD_ZERO2"}));
  if (name.rfind("HYBRID", 0) == 0) {
    return InvalidArgument("is ", name, ": shards are not replicated over groups of ranks");
  }
  return Json(name == "FULL_SHARD" ? 3 : name == "SHARD_GRAD_OP" ? 2 : 0);
}

// One of the two spellings of a setting.
class Settings {
 public:
  Settings(const std::string& section, ForeignKeys& keys) : section_(section), keys_(keys) {}
  std::string Key(const std::string& name) const {
    const std::string prefixed = Concat(section_, ".fsdp_", name);
    return keys_.Has(prefixed) ? prefixed : Concat(section_, ".", name);
  }
  ForeignKeys& keys() { return keys_; }

 private:
  const std::string section_;
  ForeignKeys& keys_;
};

// FSDP2 has `reshard_after_forward` for the strategy, which may be FSDP1's name of one.
int64_t TranslateStrategy(const std::string& usual, Settings& fsdp) {
  std::string key = fsdp.Key("sharding_strategy");
  const std::string reshard = fsdp.Key("reshard_after_forward");
  const Json* value = fsdp.keys().Find(key);
  const Json* after = fsdp.keys().Find(reshard);
  const bool is_switch =
      after != nullptr && (after->is_boolean() || *after == "true" || *after == "false" ||
                           *after == "True" || *after == "False");
  if (value == nullptr && after != nullptr && !is_switch) {
    key = reshard;
    value = after;
  }
  const StatusOr<Json> stage = StageOf(value == nullptr ? Json(usual) : *value);
  if (!stage.ok()) {
    fsdp.keys().Fail(key, Message(stage.status()));
    return 0;
  }
  fsdp.keys().Put("zero", *stage);
  if (is_switch && *stage == 3) fsdp.keys().Put("reshard_after_forward", fsdp.keys().Bool(reshard));
  return stage->get<int64_t>();
}

void TranslateClasses(const std::string& key, ForeignKeys& keys) {
  const Json* value = keys.Find(key);
  if (value == nullptr) return;
  std::vector<std::string> names;
  if (value->is_string()) names = SplitAtCommas(value->get<std::string>());
  for (const Json& item : *value) {
    if (value->is_array() && item.is_string()) names.push_back(item.get<std::string>());
  }
  std::string classes;
  for (std::string name : names) {
    std::erase(name, ' ');
    const StatusOr<std::string> ours = WrapClass(name);
    if (!ours.ok()) return keys.Fail(key, Message(ours.status()));
    if (("," + classes + ",").find("," + *ours + ",") != std::string::npos) continue;
    classes += (classes.empty() ? "" : ",") + *ours;
  }
  if (classes.empty()) return keys.Ignore(key, "names no class");
  keys.Put("auto_wrap_classes", Json(classes));
}

void TranslateWrapping(Settings& fsdp) {
  ForeignKeys& keys = fsdp.keys();
  const std::string policy = fsdp.Key("auto_wrap_policy");
  const std::string classes = fsdp.Key("transformer_layer_cls_to_wrap");
  const std::string size = fsdp.Key("min_num_params");
  std::string kind;
  if (const Json* value = keys.Find(policy)) {
    const StatusOr<std::string> chosen =
        Chosen(*value, {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"});
    if (!chosen.ok()) return keys.Fail(policy, Message(chosen.status()));
    kind = *chosen;
  }
  if (kind == "NO_WRAP") {
    keys.Ignore(policy, "blocks are gathered one by one, which needs less memory");
    keys.Ignore(classes, "the policy is NO_WRAP");
    return keys.Ignore(size, "the policy is NO_WRAP");
  }
  const int64_t elements = keys.Integer(size, 0).value_or(0);
  if (kind == "SIZE_BASED_WRAP" || (kind.empty() && elements > 0)) {
    keys.Put("auto_wrap_min_params", Json(elements));
    return keys.Ignore(classes, "modules are wrapped by their size");
  }
  keys.Ignore(size, "modules are wrapped by their class");
  TranslateClasses(classes, keys);
}

void TranslatePrefetch(Settings& fsdp) {
  ForeignKeys& keys = fsdp.keys();
  for (const char* name : {"backward_prefetch", "backward_prefetch_policy"}) {
    const std::string key = fsdp.Key(name);
    const Json* value = keys.Find(key);
    if (value == nullptr) continue;
    const StatusOr<std::string> chosen =
        Chosen(*value, {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"});
    if (!chosen.ok()) {
      keys.Fail(key, Message(chosen.status()));
      continue;
    }
    keys.Put("backward_prefetch", Json(*chosen == "BACKWARD_PRE"    ? "backward_pre"
                                       : *chosen == "BACKWARD_POST" ? "backward_post"
                                                                    : "none"));
  }
  keys.Put("forward_prefetch", keys.Bool(fsdp.Key("forward_prefetch")));
  keys.Put("limit_all_gathers", keys.Bool(fsdp.Key("limit_all_gathers")));
}

}  // namespace

StatusOr<std::string> WrapClass(const std::string& name) {
  // Every family but T5 is made of one class of blocks.
  static const auto* known =
      new std::map<std::string, std::string>{{"GPT2Block", "TransformerBlock"},
                                             {"BertLayer", "TransformerBlock"},
                                             {"RobertaLayer", "TransformerBlock"},
                                             {"ModernBertEncoderLayer", "TransformerBlock"},
                                             {"ViTLayer", "TransformerBlock"},
                                             {"GLMBlock", "TransformerBlock"},
                                             {"GlmBlock", "TransformerBlock"},
                                             {"LlamaDecoderLayer", "TransformerBlock"},
                                             {"MistralDecoderLayer", "TransformerBlock"},
                                             {"Qwen2DecoderLayer", "TransformerBlock"},
                                             {"Qwen3DecoderLayer", "TransformerBlock"},
                                             {"Gemma3DecoderLayer", "TransformerBlock"},
                                             {"TransformerBlock", "TransformerBlock"},
                                             {"T5Block", "T5Block"}};
  const auto found = known->find(name);
  if (found != known->end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [theirs, ours] : *known) names.push_back(theirs);
  return InvalidArgument("names the layer class '", name, "', which no model here has",
                         DidYouMean(name, names));
}

ForeignTable FsdpKeys(const std::string& section) {
  const ForeignTable settings = {
      NoEffect("version", "there is one implementation, for what either version asks"),
      Read("sharding_strategy", "zero"),
      Read("reshard_after_forward", "reshard_after_forward"),
      Read("auto_wrap_policy", "auto_wrap_classes, auto_wrap_min_params"),
      Read("transformer_layer_cls_to_wrap", "auto_wrap_classes"),
      Read("min_num_params", "auto_wrap_min_params"),
      Read("backward_prefetch", "backward_prefetch"),
      Read("backward_prefetch_policy", "backward_prefetch"),
      Read("forward_prefetch", "forward_prefetch"),
      Read("limit_all_gathers", "limit_all_gathers"),
      Read("offload_params", "cpu_offload, offload_parameters"),
      Read("cpu_offload", "cpu_offload, offload_parameters"),
      Renamed("activation_checkpointing", "checkpoint_activations"),
      Renamed("activation_checkpointing_offload", "offload_activations"),
      NoEffect("state_dict_type", "a checkpoint loads in any layout, and the model is saved whole"),
      NoEffect("use_orig_params", "parameters keep their names and shapes"),
      NoEffect("sync_module_states", "all ranks begin with the same weights"),
      NoEffect("cpu_ram_efficient_loading", "a rank maps the file and keeps its share"),
      Refused("ignored_modules", "every module is sharded"),
      Refused("mixed_precision_policy", "use autocast or dtype"),
      Refused("xla", "there are no TPUs", {false}),
      Refused("xla_fsdp_v2", "there are no TPUs", {false}),
      Refused("xla_fsdp_settings", "there are no TPUs", {Json::object()}),
      Refused("xla_fsdp_grad_ckpt", "there are no TPUs", {false}),
  };
  ForeignTable table;
  for (const char* prefix : {"fsdp_", ""}) {
    for (ForeignKey key : settings) {
      key.name = Concat(section, ".", prefix, key.name);
      table.push_back(std::move(key));
    }
  }
  return table;
}

void TranslateFsdp(const std::string& section, const std::string& strategy, ForeignKeys& keys) {
  Settings fsdp(section, keys);
  const int64_t stage = TranslateStrategy(strategy, fsdp);
  for (const char* name : {"offload_params", "cpu_offload"}) {
    const std::string key = fsdp.Key(name);
    const bool offloads = keys.Bool(key).value_or(false);
    if (offloads && stage == 0) {
      keys.Ignore(key, "nothing is sharded");
    } else if (offloads) {
      keys.Put("cpu_offload", Json(true));
      if (stage == 3) keys.Put("offload_parameters", Json(true));
    }
  }
  if (stage == 3) {
    TranslateWrapping(fsdp);
    return TranslatePrefetch(fsdp);
  }
  for (const char* name : {"auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params",
                           "backward_prefetch", "backward_prefetch_policy", "forward_prefetch",
                           "limit_all_gathers", "reshard_after_forward"}) {
    keys.Ignore(fsdp.Key(name), "parameters are whole on every rank");
  }
}

}  // namespace tessera::train
