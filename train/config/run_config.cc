// SPDX-License-Identifier: Apache-2.0
#include "train/config/run_config.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/options.h"
#include "nlohmann/json.hpp"
#include "optim/optimizer_kind.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

std::vector<OptionPart>& MutableParts() {
  static auto* parts = new std::vector<OptionPart>;
  return *parts;
}

Status UnknownKey(std::string_view name, const std::string& source) {
  std::vector<std::string> known;
  for (const Option* option : RunConfigKeys()) known.push_back(option->key);
  return InvalidArgument(source, ": unknown key '", name, "'", DidYouMean(name, known));
}

std::string FlagOf(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

}  // namespace

std::vector<OptionPart> OptionParts() {
  std::vector<OptionPart> parts = MutableParts();
  for (const std::string& name : optim::OptimizerNames()) {
    parts.push_back({"optimizer", name, (*optim::FindOptimizerKind(name))->options});
  }
  std::sort(parts.begin(), parts.end(), [](const OptionPart& a, const OptionPart& b) {
    return std::tie(a.key, a.name) < std::tie(b.key, b.name);
  });
  const auto twice =
      std::adjacent_find(parts.begin(), parts.end(), [](const OptionPart& a, const OptionPart& b) {
        return std::tie(a.key, a.name) == std::tie(b.key, b.name);
      });
  TESSERA_CHECK(twice == parts.end(), "options", "two lists of them belong to ", twice->key,
                twice->key.empty() ? "" : " ", "'", twice->name, "'");
  return parts;
}

OptionPartRegistration::OptionPartRegistration(const OptionPart& part) {
  MutableParts().push_back(part);
}

const OptionTable& RunConfig::Table() {
  static const auto* table = new OptionTable(OptionTable::Of<RunConfig>("A run")
                                                 .Include<RunConfig, DataConfig>()
                                                 .Include<RunConfig, ModelConfig>()
                                                 .Include<RunConfig, FineTuningConfig>()
                                                 .Include<RunConfig, StepsConfig>()
                                                 .Include<RunConfig, OptimizerConfig>()
                                                 .Include<RunConfig, PrecisionConfig>()
                                                 .Include<RunConfig, LossScalingConfig>()
                                                 .Include<RunConfig, DeviceConfig>()
                                                 .Include<RunConfig, ReportConfig>()
                                                 .Include<RunConfig, ParallelConfig>()
                                                 .Include<RunConfig, ZeroConfig>());
  return *table;
}

// --- Keys ----------------------------------------------------------------------------------------

const Option* FindRunConfigKey(std::string_view name) {
  if (const Option* option = RunConfig::Table().FindByAnyName(name)) return option;
  for (const OptionPart& part : OptionParts()) {
    if (const Option* option = part.table->FindByAnyName(name)) return option;
  }
  return nullptr;
}

std::vector<const Option*> RunConfigKeys() {
  std::vector<const Option*> keys;
  std::set<std::string> seen;
  const auto add = [&](const OptionTable& table) {
    for (const Option& option : table.options()) {
      if (seen.insert(option.key).second) keys.push_back(&option);
    }
  };
  add(RunConfig::Table());
  for (const OptionPart& part : OptionParts()) add(*part.table);
  return keys;
}

Status SetRunConfigKey(RunConfig* config, std::string_view name, const Json& value,
                       const std::string& where) {
  const Option* option = FindRunConfigKey(name);
  if (option == nullptr) return UnknownKey(name, where);
  if (RunConfig::Table().Find(option->key) != nullptr) {
    TESSERA_RETURN_IF_ERROR(option->Set(config, value, where));
  } else {
    TESSERA_ASSIGN_OR_RETURN(const Json converted, option->Convert(value, where));
    if (!converted.is_null()) config->options[option->key] = converted;
  }
  if (!value.is_null()) config->given.insert(option->key);
  return OkStatus();
}

Status SetRunConfigField(RunConfig* config, std::string_view name, const std::string& text) {
  const Option* option = FindRunConfigKey(name);
  if (option == nullptr) return UnknownKey(name, "flags");
  return SetRunConfigKey(config, name, option->FromText(text), FlagOf(name));
}

// --- What is set, and what it means --------------------------------------------------------------

Json RunConfig::Get(std::string_view key) const {
  if (const Option* option = Table().Find(key)) return option->Get(this);
  const auto found = options->find(std::string(key));
  return found == options->end() ? Json() : *found;
}

bool RunConfig::IsSet(std::string_view key) const {
  if (given.count(std::string(key)) > 0) return true;
  const Option* option = Table().Find(key);
  return option == nullptr ? options->contains(key) : option->Get(this) != option->default_value();
}

void RunConfig::Unset(std::string_view key) {
  given.erase(std::string(key));
  options->erase(std::string(key));
  if (const Option* option = Table().Find(key)) option->Reset(this);
}

bool RunConfig::Holds(const OptionValue& value) const {
  const Json now = Get(value.key);
  if (value.values.empty()) return !now.is_null();
  const Option* option = FindRunConfigKey(value.key);
  const std::string text = option == nullptr ? "" : option->ToText(now);
  return std::find(value.values.begin(), value.values.end(), text) != value.values.end();
}

namespace {

// "zero 1, 2 or 3", "profile", "no val_data".
std::string Wanted(const OptionValue& value) {
  if (value.values.empty()) return value.key;
  if (value.values == std::vector<std::string>{""}) return "no " + value.key;
  return value.key + " " + OneOf(value.values);
}

}  // namespace

Status RunConfig::Applies(std::string_view key) const {
  const Option* option = Table().Find(key);
  if (option == nullptr) {
    OptionValue wanted;
    TESSERA_ASSIGN_OR_RETURN(option, FindInChosenParts(key, &wanted));
    if (option == nullptr) {
      return InvalidArgument("needs ", Wanted(wanted), " (it is ",
                             Get(wanted.key).get<std::string>(), ")");
    }
  }
  for (const std::vector<OptionValue>& need : option->notes.needs) {
    if (std::any_of(need.begin(), need.end(), [&](const OptionValue& v) { return Holds(v); })) {
      continue;
    }
    std::vector<std::string> wanted;
    for (const OptionValue& value : need) wanted.push_back(Wanted(value));
    const std::string now = FindRunConfigKey(need[0].key)->ToText(Get(need[0].key));
    return InvalidArgument("needs ", OneOf(wanted),
                           now.empty() ? "" : Concat(" (", need[0].key, " is ", now, ")"));
  }
  return OkStatus();
}

// The option of a part that is chosen, or of any where none is chosen yet; nullptr: `wanted` says
// what would have to be chosen.
StatusOr<const Option*> RunConfig::FindInChosenParts(std::string_view key,
                                                     OptionValue* wanted) const {
  for (const OptionPart& part : OptionParts()) {
    const Option* option = part.table->Find(key);
    if (option == nullptr) continue;
    const Json chosen = Get(part.key);
    if (chosen.is_null() || chosen == part.name) return option;
    wanted->key = part.key;
    wanted->values.push_back(part.name);
  }
  if (wanted->values.empty()) return UnknownKey(key, "options");
  return nullptr;
}

// Some of them were assigned in C++.
Status RunConfig::CheckPartOptions() const {
  for (const auto& [key, value] : options->items()) {
    const Option* option = FindRunConfigKey(key);
    if (option == nullptr) return UnknownKey(key, "options");
    TESSERA_RETURN_IF_ERROR(option->Convert(value, key).status());
  }
  return OkStatus();
}

Status RunConfig::ReadPart(const OptionTable& table, void* part) const {
  for (const Option& option : table.options()) {
    if (!options->contains(option.key)) continue;
    TESSERA_RETURN_IF_ERROR(option.Set(part, options->at(option.key), option.key));
  }
  return OkStatus();
}

// --- Reports -------------------------------------------------------------------------------------

nlohmann::ordered_json RunConfig::ToJson() const {
  nlohmann::ordered_json json;
  for (const Option& option : Table().options()) {
    if (Applies(option.key).ok()) json[option.key] = option.Get(this);
  }
  if (json.contains("min_lr")) json["min_lr"] = final_lr();
  for (const OptionPart& part : OptionParts()) {
    if (!part.key.empty() && Get(part.key) != part.name) continue;
    for (const Option& option : part.table->options()) {
      json[option.key] = options->value(option.key, option.default_value());
    }
  }
  for (const auto& [key, value] : options->items()) json[key] = value;
  return json;
}

std::string RunConfig::Describe() const {
  constexpr size_t kLine = 120;
  struct Line {
    std::string key, value, usual;
  };
  std::vector<Line> lines;
  size_t keys = 0, values = 0;
  for (const Option* known : RunConfigKeys()) {
    if (!IsSet(known->key)) continue;
    OptionValue other;
    const Option* option = known;
    if (Table().Find(known->key) == nullptr) {
      const auto chosen = FindInChosenParts(known->key, &other);
      if (chosen.ok() && *chosen != nullptr) option = *chosen;
    }
    Line line = {option->key, option->ToText(Get(option->key)),
                 option->ToText(option->default_value())};
    if (line.usual == line.value)
      line.usual = "the default";
    else if (!line.usual.empty())
      line.usual = "default " + line.usual;
    keys = std::max(keys, line.key.size());
    values = std::max(values, std::min<size_t>(line.value.size(), 40));
    lines.push_back(std::move(line));
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row = "  " + line.key + std::string(keys - line.key.size() + 2, ' ') + line.value;
    if (!line.usual.empty()) {
      if (line.value.size() < values) row += std::string(values - line.value.size(), ' ');
      row += "  (" + line.usual + ")";
    }
    if (row.size() > kLine) row = row.substr(0, kLine - 3) + "...";
    text += row + "\n";
  }
  return text;
}

}  // namespace tessera::train
