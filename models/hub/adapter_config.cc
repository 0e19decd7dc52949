// SPDX-License-Identifier: Apache-2.0
#include "models/hub/adapter_config.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json_text.h"
#include "base/options.h"
#include "core/regex.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// Far beyond any adapter; products of it and a layer's size stay within 64 bits.
constexpr double kMostRank = 1 << 20;

// From end to end. Patterns have been compiled before (FromJson).
bool FullMatch(const std::string& pattern, const std::string& text) {
  const StatusOr<Regex> regex = Regex::Compile("\\A(?:" + pattern + ")\\Z", Regex::Syntax::kPython);
  bool found = false;
  if (regex.ok()) regex->FindAll(text, [&](size_t, size_t) { found = true; });
  return found;
}

// The index in "model.layers.3.mlp": of the list `name`, or of the first there is.
std::optional<int64_t> LayerIndexOf(const std::string& module,
                                    const std::vector<std::string>& lists) {
  std::string before;
  size_t begin = 0;
  while (begin < module.size()) {
    const size_t end = std::min(module.find('.', begin), module.size());
    const std::string part = module.substr(begin, end - begin);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    const bool named = lists.empty()
                           ? !before.empty()
                           : std::any_of(lists.begin(), lists.end(), [&](const std::string& list) {
                               return before == list || before.ends_with("." + list);
                             });
    if (number && named && part.size() < 10 && end < module.size()) return std::stoll(part);
    before = module.substr(0, end);
    begin = end + 1;
  }
  return std::nullopt;
}

Status CheckPattern(const std::string& where, const std::string& pattern) {
  const Status compiled = Regex::Compile("(?:" + pattern + ")", Regex::Syntax::kPython).status();
  return compiled.ok() ? compiled
                       : InvalidArgument(where, " has a bad pattern: ", Message(compiled));
}

Status ReadNames(const json& config, const char* key, const std::string& source,
                 ModuleNames* modules) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_string()) {
    return ReadMember(config, key, source, &modules->names);
  }
  modules->pattern = found->get<std::string>();
  modules->all_linear = modules->pattern == "all-linear";
  if (modules->all_linear) modules->pattern.clear();
  return CheckPattern(Concat(source, ": '", key, "'"), modules->pattern);
}

template <typename T>
Status ReadPatterns(const json& config, const char* key, const std::string& source,
                    std::vector<std::pair<std::string, T>>* values) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return OkStatus();
  const std::string where = Concat(source, ": '", key, "'");
  if (!found->is_object()) return InvalidArgument(where, " must be an object");
  for (const auto& [pattern, number] : found->items()) {
    T value = 0;
    if (number.is_null()) return InvalidArgument(where, " has null for '", pattern, "'");
    TESSERA_RETURN_IF_ERROR(ReadValue(number, Concat(where, " of '", pattern, "'"), &value,
                                      {.above = 0, .most = kMostRank}));
    TESSERA_RETURN_IF_ERROR(CheckPattern(where, pattern));
    values->emplace_back(pattern, value);
  }
  return OkStatus();
}

// The first pattern that matches.
template <typename T>
const std::pair<std::string, T>* FindPattern(const std::vector<std::pair<std::string, T>>& patterns,
                                             const std::string& module) {
  for (const auto& pattern : patterns) {
    if (FullMatch("(?:.*\\.)?(?:" + pattern.first + ")", module)) return &pattern;
  }
  return nullptr;
}

template <typename T>
T ByPattern(const std::vector<std::pair<std::string, T>>& patterns, const std::string& module,
            T otherwise) {
  const auto* const found = FindPattern(patterns, module);
  return found == nullptr ? otherwise : found->second;
}

template <typename T>
Status CheckOnePattern(const char* key, std::vector<std::pair<std::string, T>> patterns,
                       const std::string& module) {
  const auto* const first = FindPattern(patterns, module);
  if (first == nullptr) return OkStatus();
  const std::pair<std::string, T> taken = *first;
  std::erase_if(patterns, [&](const auto& pattern) { return pattern.second == taken.second; });
  const auto* const second = FindPattern(patterns, module);
  if (second == nullptr) return OkStatus();
  return InvalidArgument(kAdapterConfigName, ": '", key, "' has two values for '", module,
                         "': ", taken.second, " ('", taken.first, "') and ", second->second, " ('",
                         second->first, "'); keep one");
}

Status ReadInit(const json& config, const std::string& source, std::string* init) {
  const json value = config.value("init_lora_weights", json());
  if (value.is_null() || value == true) return OkStatus();
  *init = value.is_string() ? value.get<std::string>() : value.dump();
  if (value == false || value == "gaussian") return OkStatus();
  // How it began; the model's weights are as they were.
  if (value == "eva" || value == "orthogonal" || value == "mica") {
    *init = "true";
    return OkStatus();
  }
  AdapterConfig named;
  named.init = *init;
  if (AdapterConfig::IsInit(*init) && named.StartsFromWeights()) {
    return InvalidArgument(source, ": 'init_lora_weights' is ", value.dump(),
                           ": the adapter goes with weights that PEFT has changed; save it there "
                           "with path_initial_model_for_weight_conversion");
  }
  return InvalidArgument(source, ": 'init_lora_weights': ", value.dump(), " is not supported");
}

}  // namespace

bool AdapterConfig::IsInit(const std::string& text) {
  for (const char* name : {"true", "false", "gaussian", "pissa", "olora"}) {
    if (text == name) return true;
  }
  const std::string prefix = "pissa_niter_";
  const std::string count = text.substr(std::min(prefix.size(), text.size()));
  return text.starts_with(prefix) && !count.empty() && count.size() < 4 &&
         std::all_of(count.begin(), count.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool AdapterConfig::StartsFromWeights() const {
  return init.starts_with("pissa") || init == "olora";
}

AdapterConfig AdapterConfig::OfWholeWeights() const {
  AdapterConfig whole = *this;
  // So that the scale stays.
  const double more = use_rslora ? std::sqrt(2.0) : 2.0;
  whole.r *= 2;
  whole.lora_alpha *= more;
  for (auto& [pattern, rank] : whole.rank_pattern) rank *= 2;
  for (auto& [pattern, alpha] : whole.alpha_pattern) alpha *= more;
  whole.init = "true";
  return whole;
}

bool ModuleNames::Match(const std::string& module) const {
  if (!pattern.empty()) return FullMatch(pattern, module);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return module == name || module.ends_with("." + name);
  });
}

const OptionTable& PrefixTuningConfig::Table() {
  using C = PrefixTuningConfig;
  const OptionNotes size = {.least = 1, .most = kMostRank};
  static const auto* table = new OptionTable(
      OptionTable::Of<C>("Prefix tuning")
          .Add("num_virtual_tokens", &C::num_virtual_tokens, "tokens of the prefix", size)
          .Add("prefix_projection", &C::prefix_projection, "an encoder gives the prefix")
          .Add("encoder_hidden_size", &C::encoder_hidden_size, "inner features of the encoder",
               size)
          .Add("num_layers", &C::num_layers, "layers of the model", size)
          .Add("num_attention_heads", &C::num_attention_heads, "heads of keys and values", size)
          .Add("token_dim", &C::token_dim, "features of all heads of keys", size)
          .Add("num_transformer_submodules", &C::num_transformer_submodules,
               "2 for an encoder and a decoder", size)
          .AddUnsupported({{"modules_to_save", json::array()}}));
  return *table;
}

const OptionTable& AdapterConfig::Table() {
  using C = AdapterConfig;
  static const auto* table = new OptionTable([] {
    OptionTable lora = OptionTable::Of<C>("LoRA");
    lora.Add("r", &C::r, "rank", {.least = 1, .most = kMostRank})
        .Add("lora_alpha", &C::lora_alpha, "the change is scaled by lora_alpha / r",
             {.least = 0, .below = 1e9})
        .Add("lora_dropout", &C::lora_dropout, "dropout on inputs of adapters",
             {.least = 0, .below = 1})
        .Add("use_rslora", &C::use_rslora, "scales by lora_alpha / sqrt(r)")
        .Add("use_dora", &C::use_dora, "trains norms of columns too")
        .Add("bias", &C::bias, "biases that train", {.choices = {"none", "all", "lora_only"}})
        .Add("modules_to_save", &C::modules_to_save, "modules that train whole")
        .Add("layers_pattern", &C::layers_pattern, "lists of layers")
        .Add("ensure_weight_tying", &C::ensure_weight_tying, "tied weights stay tied");
    std::vector<UnsupportedKey> refused;
    for (const char* key : {"lora_bias", "use_qalora"}) {
      refused.push_back({key, false});
    }
    for (const char* key :
         {"trainable_token_indices", "loftq_config", "corda_config", "lora_ga_config",
          "velora_config", "alora_invocation_tokens", "monteclora_config", "layer_replication",
          "target_parameters", "use_bdlora", "arrow_config", "kasa_config", "megatron_config"}) {
      refused.push_back({key, json::object()});
    }
    lora.AddUnsupported(std::move(refused));
    return lora;
  }());
  return *table;
}

StatusOr<AdapterConfig> AdapterConfig::FromJson(const json& config, const std::string& where) {
  if (!config.is_object()) return InvalidArgument(where, ": not a JSON object");
  AdapterConfig c;
  std::string type;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "peft_type", where, &type));
  TESSERA_RETURN_IF_ERROR(
      ReadMember(config, "base_model_name_or_path", where, &c.base_model_name_or_path));
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "task_type", where, &c.task_type));
  if (type == "PREFIX_TUNING") {
    TESSERA_RETURN_IF_ERROR(
        PrefixTuningConfig::Table().ApplySupported(config, where, &c.prefix.emplace()));
    if (c.prefix->num_virtual_tokens > 0) return c;
    return InvalidArgument(where, ": 'num_virtual_tokens' is missing");
  }
  if (type != "LORA") {
    return InvalidArgument(where, ": 'peft_type' is '", type,
                           "'; supported are LORA and PREFIX_TUNING");
  }
  TESSERA_RETURN_IF_ERROR(Table().ApplySupported(config, where, &c));
  TESSERA_RETURN_IF_ERROR(ReadNames(config, "target_modules", where, &c.target_modules));
  TESSERA_RETURN_IF_ERROR(ReadNames(config, "exclude_modules", where, &c.exclude_modules));
  std::vector<int64_t> layers;
  TESSERA_RETURN_IF_ERROR(ReadMember(config, "layers_to_transform", where, &layers));
  if (!layers.empty()) c.layers_to_transform = std::move(layers);
  TESSERA_RETURN_IF_ERROR(ReadPatterns(config, "rank_pattern", where, &c.rank_pattern));
  TESSERA_RETURN_IF_ERROR(ReadPatterns(config, "alpha_pattern", where, &c.alpha_pattern));
  TESSERA_RETURN_IF_ERROR(ReadInit(config, where, &c.init));
  return c;
}

StatusOr<AdapterConfig> AdapterConfig::Read(const std::string& folder) {
  const std::string path = JoinPath(folder, std::string(kAdapterConfigName));
  if (!PathExists(path)) {
    return NotFound("'", folder, "' is no adapter: it has no ", kAdapterConfigName);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  TESSERA_ASSIGN_OR_RETURN(const json object, ParseJson(text, path));
  return FromJson(object, path);
}

nlohmann::ordered_json AdapterConfig::ToJson(bool fan_in_fan_out) const {
  const auto names = [](const ModuleNames& modules) -> nlohmann::ordered_json {
    if (modules.all_linear) return "all-linear";
    if (!modules.pattern.empty()) return modules.pattern;
    if (modules.names.empty()) return nullptr;
    return modules.names;
  };
  const auto or_null = [](const auto& value) -> nlohmann::ordered_json {
    if (value.empty()) return nullptr;
    return value;
  };
  nlohmann::ordered_json json;
  json["peft_type"] = prefix ? "PREFIX_TUNING" : "LORA";
  json["task_type"] = or_null(task_type);
  json["base_model_name_or_path"] = or_null(base_model_name_or_path);
  json["inference_mode"] = true;
  if (prefix) {
    const auto known = [](const std::optional<int64_t>& value) -> nlohmann::ordered_json {
      if (!value) return nullptr;
      return *value;
    };
    json["num_virtual_tokens"] = prefix->num_virtual_tokens;
    json["num_layers"] = known(prefix->num_layers);
    json["num_attention_heads"] = known(prefix->num_attention_heads);
    json["token_dim"] = known(prefix->token_dim);
    json["num_transformer_submodules"] = known(prefix->num_transformer_submodules);
    json["prefix_projection"] = prefix->prefix_projection;
    json["encoder_hidden_size"] = prefix->encoder_hidden_size;
    return json;
  }
  json["r"] = r;
  // PEFT's is an integer where it can be one.
  if (lora_alpha == std::floor(lora_alpha)) {
    json["lora_alpha"] = static_cast<int64_t>(lora_alpha);
  } else {
    json["lora_alpha"] = lora_alpha;
  }
  json["lora_dropout"] = lora_dropout;
  json["target_modules"] = names(target_modules);
  json["exclude_modules"] = names(exclude_modules);
  json["fan_in_fan_out"] = fan_in_fan_out;
  json["bias"] = bias;
  json["use_rslora"] = use_rslora;
  json["use_dora"] = use_dora;
  json["modules_to_save"] = or_null(modules_to_save);
  json["init_lora_weights"] = init;
  if (init == "true" || init == "false") json["init_lora_weights"] = init == "true";
  json["layers_to_transform"] = nullptr;
  if (layers_to_transform) json["layers_to_transform"] = *layers_to_transform;
  json["layers_pattern"] = or_null(layers_pattern);
  json["ensure_weight_tying"] = ensure_weight_tying;
  json["rank_pattern"] = nlohmann::ordered_json::object();
  for (const auto& [pattern, rank] : rank_pattern) json["rank_pattern"][pattern] = rank;
  json["alpha_pattern"] = nlohmann::ordered_json::object();
  for (const auto& [pattern, alpha] : alpha_pattern) json["alpha_pattern"][pattern] = alpha;
  return json;
}

bool AdapterConfig::Targets(const std::string& module, bool linear) const {
  // What is saved whole, by a name of its own, is not adapted.
  const std::string within = "." + module + ".";
  const bool whole = std::any_of(
      modules_to_save.begin(), modules_to_save.end(),
      [&](const std::string& name) { return within.find("." + name + ".") != std::string::npos; });
  if (whole || (!exclude_modules.empty() && exclude_modules.Match(module))) return false;
  if (target_modules.all_linear) return linear;
  if (!target_modules.Match(module)) return false;
  if (!layers_to_transform || !target_modules.pattern.empty()) return true;
  const std::optional<int64_t> layer = LayerIndexOf(module, layers_pattern);
  return layer && std::find(layers_to_transform->begin(), layers_to_transform->end(), *layer) !=
                      layers_to_transform->end();
}

bool AdapterConfig::Saves(const std::string& module) const {
  for (size_t end = 0; end != std::string::npos && !module.empty();) {
    end = module.find('.', end + 1);
    const std::string_view part = std::string_view(module).substr(0, end);
    for (const std::string& name : modules_to_save) {
      if (part.ends_with(name)) return true;
    }
  }
  return false;
}

Status AdapterConfig::CheckPatterns(const std::string& module) const {
  TESSERA_RETURN_IF_ERROR(CheckOnePattern("rank_pattern", rank_pattern, module));
  return CheckOnePattern("alpha_pattern", alpha_pattern, module);
}

int64_t AdapterConfig::RankOf(const std::string& module) const {
  return ByPattern(rank_pattern, module, r);
}

double AdapterConfig::ScaleOf(const std::string& module) const {
  const auto rank = static_cast<double>(RankOf(module));
  return ByPattern(alpha_pattern, module, lora_alpha) / (use_rslora ? std::sqrt(rank) : rank);
}

}  // namespace tessera::models
