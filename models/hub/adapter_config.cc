// SPDX-License-Identifier: Apache-2.0
#include "models/hub/adapter_config.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json_text.h"
#include "core/regex.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

using nlohmann::json;

// Far beyond any adapter; products of it and a layer's size stay within 64 bits.
constexpr int64_t kMostRank = 1 << 20;

// From end to end. Patterns have been compiled before (FromJson).
bool FullMatch(const std::string& pattern, const std::string& text) {
  const StatusOr<Regex> regex = Regex::Compile("\\A(?:" + pattern + ")\\z");
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

// Reads members one by one; the first problem stays.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool Has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }
  const json& operator[](const char* key) const { return object_[key]; }
  const Status& status() const { return status_; }

  void Fail(const char* key, const std::string& problem) {
    if (status_.ok()) status_ = InvalidArgument(where_, ": '", key, "' ", problem);
  }
  void Read(const char* key, bool* value) {
    if (!Has(key)) return;
    if (!object_[key].is_boolean()) return Fail(key, "must be true or false");
    *value = object_[key].get<bool>();
  }
  void Read(const char* key, std::string* value) {
    if (!Has(key)) return;
    if (!object_[key].is_string()) return Fail(key, "must be a string");
    *value = object_[key].get<std::string>();
  }
  void Read(const char* key, std::vector<std::string>* value) {
    if (!Has(key)) return;
    const json& list = object_[key];
    if (list.is_string()) {
      *value = {list.get<std::string>()};
      return;
    }
    if (!list.is_array()) return Fail(key, "must be a list of names");
    for (const json& name : list) {
      if (!name.is_string()) return Fail(key, "must be a list of names");
      value->push_back(name.get<std::string>());
    }
  }
  void Read(const char* key, int64_t least, int64_t* value) {
    if (!Has(key)) return;
    const json& number = object_[key];
    if (!number.is_number_integer() || number.get<int64_t>() < least) {
      return Fail(key, Concat("must be an integer of ", least, " or more, not ", number.dump()));
    }
    if (number.get<int64_t>() > kMostRank) {
      return Fail(key, Concat("is ", number.dump(), "; the most is ", kMostRank));
    }
    *value = number.get<int64_t>();
  }
  // Within [least, below).
  void Read(const char* key, double least, double below, double* value) {
    if (!Has(key)) return;
    const json& number = object_[key];
    if (!number.is_number() || !(number.get<double>() >= least && number.get<double>() < below)) {
      return Fail(key, Concat("is ", number.dump(), ", not a number from ", least, " to ", below));
    }
    *value = number.get<double>();
  }
  void Read(const char* key, ModuleNames* value) {
    if (!Has(key)) return;
    if (!object_[key].is_string()) return Read(key, &value->names);
    value->pattern = object_[key].get<std::string>();
    value->all_linear = value->pattern == "all-linear";
    if (value->all_linear) value->pattern.clear();
    Check(key, value->pattern);
  }
  template <typename T>
  void ReadPatterns(const char* key, std::vector<std::pair<std::string, T>>* values) {
    if (!Has(key)) return;
    if (!object_[key].is_object()) return Fail(key, "must be an object");
    for (const auto& [pattern, value] : object_[key].items()) {
      const bool fits = std::is_same_v<T, int64_t> ? value.is_number_integer() : value.is_number();
      if (!fits || value.template get<double>() <= 0 || value.template get<double>() > kMostRank) {
        return Fail(key, Concat("has ", value.dump(), " for '", pattern, "'"));
      }
      Check(key, pattern);
      values->emplace_back(pattern, value.template get<T>());
    }
  }
  // Of what changes results: only these values, or nothing, are supported.
  void Refuse(const char* key, const std::vector<json>& neutral) {
    if (!Has(key)) return;
    if (std::find(neutral.begin(), neutral.end(), object_[key]) != neutral.end()) return;
    Fail(key, Concat("is ", object_[key].dump(), ", which is not supported"));
  }

 private:
  void Check(const char* key, const std::string& pattern) {
    const Status compiled = Regex::Compile("(?:" + pattern + ")").status();
    if (!compiled.ok()) Fail(key, Concat("has a bad pattern: ", Message(compiled)));
  }

  const json& object_;
  const std::string where_;
  Status status_;
};

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

void ReadInit(Reader* reader, std::string* init) {
  constexpr char kKey[] = "init_lora_weights";
  if (!reader->Has(kKey) || (*reader)[kKey] == true) return;
  if ((*reader)[kKey] == false) {
    *init = "false";
    return;
  }
  AdapterConfig named;
  if ((*reader)[kKey].is_string()) named.init = (*reader)[kKey].get<std::string>();
  if (AdapterConfig::IsInit(named.init) && named.StartsFromWeights()) {
    reader->Fail(kKey, Concat("is \"", named.init,
                              "\": the adapter goes with weights that PEFT has changed; save it "
                              "there with path_initial_model_for_weight_conversion"));
  }
  reader->Refuse(kKey, {"gaussian"});
  *init = named.init;
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

namespace {

PrefixTuningConfig ReadPrefixTuning(Reader* reader) {
  PrefixTuningConfig c;
  reader->Read("num_virtual_tokens", 1, &c.num_virtual_tokens);
  if (c.num_virtual_tokens == 0) reader->Fail("num_virtual_tokens", "is missing");
  reader->Read("prefix_projection", &c.prefix_projection);
  reader->Read("encoder_hidden_size", 1, &c.encoder_hidden_size);
  const auto read = [&](const char* key, std::optional<int64_t>* value) {
    if (reader->Has(key)) reader->Read(key, 1, &value->emplace());
  };
  read("num_layers", &c.num_layers);
  read("num_attention_heads", &c.num_attention_heads);
  read("token_dim", &c.token_dim);
  read("num_transformer_submodules", &c.num_transformer_submodules);
  reader->Refuse("modules_to_save", {json::array()});
  return c;
}

}  // namespace

StatusOr<AdapterConfig> AdapterConfig::FromJson(const json& config, const std::string& where) {
  if (!config.is_object()) return InvalidArgument(where, ": not a JSON object");
  Reader reader(config, where);
  AdapterConfig c;
  std::string type;
  reader.Read("peft_type", &type);
  reader.Read("base_model_name_or_path", &c.base_model_name_or_path);
  reader.Read("task_type", &c.task_type);
  if (type == "PREFIX_TUNING") c.prefix = ReadPrefixTuning(&reader);
  if (type != "LORA" && !c.prefix) {
    reader.Fail("peft_type", Concat("is '", type, "'; supported are LORA and PREFIX_TUNING"));
  }
  if (type != "LORA") {
    TESSERA_RETURN_IF_ERROR(reader.status());
    return c;
  }
  reader.Read("r", 1, &c.r);
  reader.Read("lora_alpha", 0, 1e9, &c.lora_alpha);
  reader.Read("lora_dropout", 0, 1, &c.lora_dropout);
  reader.Read("use_rslora", &c.use_rslora);
  reader.Read("use_dora", &c.use_dora);
  reader.Read("bias", &c.bias);
  if (c.bias != "none" && c.bias != "all" && c.bias != "lora_only") {
    reader.Fail("bias", Concat("is '", c.bias, "', expected none, all or lora_only"));
  }
  reader.Read("target_modules", &c.target_modules);
  reader.Read("exclude_modules", &c.exclude_modules);
  reader.Read("modules_to_save", &c.modules_to_save);
  if (reader.Has("layers_to_transform")) {
    c.layers_to_transform.emplace();
    const auto& layers = reader["layers_to_transform"];
    const std::vector<json> list =
        layers.is_array() ? layers.get<std::vector<json>>() : std::vector<json>{layers};
    for (const json& layer : list) {
      if (layer.is_number_integer()) {
        c.layers_to_transform->push_back(layer.get<int64_t>());
      } else {
        reader.Fail("layers_to_transform", "must be an integer or a list of them");
      }
    }
    if (c.layers_to_transform->empty()) c.layers_to_transform.reset();
  }
  reader.Read("layers_pattern", &c.layers_pattern);
  reader.ReadPatterns("rank_pattern", &c.rank_pattern);
  reader.ReadPatterns("alpha_pattern", &c.alpha_pattern);
  const json nothing = json::object(), none = json::array();
  ReadInit(&reader, &c.init);
  for (const char* key : {"lora_bias", "use_qalora", "ensure_weight_tying"}) {
    reader.Refuse(key, {false});
  }
  for (const char* key :
       {"trainable_token_indices", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
        "velora_config", "alora_invocation_tokens", "monteclora_config", "layer_replication",
        "target_parameters", "use_bdlora", "arrow_config", "kasa_config", "megatron_config"}) {
    reader.Refuse(key, {nothing, none});
  }
  TESSERA_RETURN_IF_ERROR(reader.status());
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
  json["rank_pattern"] = nlohmann::ordered_json::object();
  for (const auto& [pattern, rank] : rank_pattern) json["rank_pattern"][pattern] = rank;
  json["alpha_pattern"] = nlohmann::ordered_json::object();
  for (const auto& [pattern, alpha] : alpha_pattern) json["alpha_pattern"][pattern] = alpha;
  return json;
}

bool AdapterConfig::Targets(const std::string& module, bool linear) const {
  if (Saves(module) || (!exclude_modules.empty() && exclude_modules.Match(module))) return false;
  if (target_modules.all_linear) return linear;
  if (!target_modules.Match(module)) return false;
  if (!layers_to_transform || !target_modules.pattern.empty()) return true;
  const std::optional<int64_t> layer = LayerIndexOf(module, layers_pattern);
  return layer && std::find(layers_to_transform->begin(), layers_to_transform->end(), *layer) !=
                      layers_to_transform->end();
}

bool AdapterConfig::Saves(const std::string& module) const {
  const std::string within = "." + module + ".";
  return std::any_of(modules_to_save.begin(), modules_to_save.end(), [&](const std::string& name) {
    return within.find("." + name + ".") != std::string::npos;
  });
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
