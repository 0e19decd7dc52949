// SPDX-License-Identifier: Apache-2.0
// What an adapter is, as PEFT's adapter_config.json says it: which layers it changes, and how.
//
//   TESSERA_ASSIGN_OR_RETURN(const AdapterConfig config, AdapterConfig::Read("adapter-folder"));
//   if (config.Targets("model.layers.0.self_attn.q_proj")) ... config.RankOf(...)
//
// Fields are named as there. What changes results and is not supported is refused by name; the rest
// is passed over.
#ifndef TESSERA_MODELS_HUB_ADAPTER_CONFIG_H_
#define TESSERA_MODELS_HUB_ADAPTER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options_fwd.h"
#include "base/status.h"
#include "models/hub/prefix_adapter.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";
inline constexpr std::string_view kAdapterWeightsName = "adapter_model.safetensors";

// Names of modules: those that are one of a list, or end in "." and one of it; those that a regular
// expression (as Python's re writes it) matches from end to end; or every linear layer but heads.
struct ModuleNames {
  std::vector<std::string> names = {};
  std::string pattern = {};
  bool all_linear = false;

  bool empty() const { return names.empty() && pattern.empty() && !all_linear; }
  // `all_linear` is the caller's to know.
  bool Match(const std::string& module) const;
};

struct AdapterConfig {
  // Prefix tuning; the rest then says nothing but what the adapter is for. nullopt: LoRA.
  std::optional<PrefixTuningConfig> prefix = std::nullopt;
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  bool use_rslora = false;  // scaled by alpha / sqrt(r) instead of alpha / r
  bool use_dora = false;
  // init_lora_weights: true, "false" (B begins as numbers, too), "gaussian" (A has the standard
  // deviation 1 / r), or a part of the weight, "pissa", "pissa_niter_4" or "olora".
  std::string init = "true";
  std::string bias = "none";  // which biases train: "none", "all", "lora_only" (of adapted layers)
  ModuleNames target_modules = {};
  ModuleNames exclude_modules = {};
  // Modules that train whole, and are saved with the adapter: those whose names end so, as far as
  // the model has them (PEFT names both "classifier" and "score" by itself).
  std::vector<std::string> modules_to_save = {};
  // Layers by their index (all, if none are named), found in names as `layers_pattern`.INDEX (in
  // any list of layers, if none is named).
  std::optional<std::vector<int64_t>> layers_to_transform = std::nullopt;
  std::vector<std::string> layers_pattern = {};
  // What is tied to the embedding or the head stays so, where they are saved or adapted: the other
  // one is, too.
  bool ensure_weight_tying = false;
  // By regular expressions of the ends of names. Two that match a module and differ are refused
  // (CheckPatterns); PEFT takes the first of the file.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  // What is written, and not looked at: what the base was called, what the adapter is for.
  std::string base_model_name_or_path = {};
  std::string task_type = {};

  // `where` begins messages: the file.
  static StatusOr<AdapterConfig> FromJson(const nlohmann::json& config, const std::string& where);
  static const OptionTable& Table();
  // Of `folder`/adapter_config.json.
  static StatusOr<AdapterConfig> Read(const std::string& folder);
  // Whether the first values are a part of the weight, which the adapter takes from it.
  bool StartsFromWeights() const;
  // That of the same changes to the weight as it was, of twice the rank: how adapters are saved
  // that started from weights (PEFT's path_initial_model_for_weight_conversion).
  AdapterConfig OfWholeWeights() const;
  // Whether `init` is one of these values; `text` as a user says it.
  static bool IsInit(const std::string& text);

  // As PEFT writes it. `fan_in_fan_out` is of layers whose weight is [in, out] (GPT-2's).
  nlohmann::ordered_json ToJson(bool fan_in_fan_out) const;

  // Whether a module with this (full) name is one of the target_modules. `linear`: a linear layer
  // that is no head.
  bool Targets(const std::string& module, bool linear) const;
  // Whether it, or one that it is in, is one of modules_to_save.
  bool Saves(const std::string& module) const;
  // Refuses a module that patterns say different things of.
  Status CheckPatterns(const std::string& module) const;
  int64_t RankOf(const std::string& module) const;
  double ScaleOf(const std::string& module) const;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_ADAPTER_CONFIG_H_
