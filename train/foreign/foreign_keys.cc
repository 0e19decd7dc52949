// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/foreign_keys.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/nearest_name.h"
#include "base/options.h"
#include "train/config/run_config.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

constexpr char kLeft[] = "left to the run's own settings";

bool IsLeft(const Json& value) { return value.is_null() || value == "auto"; }

// "True" and "false" are what Python and YAML write for true and false; "2" a number in a YAML file
// or an environment.
Json Plain(const Json& value) {
  if (!value.is_string()) return value;
  std::string text = value.get<std::string>();
  if (text == "True" || text == "true") return true;
  if (text == "False" || text == "false") return false;
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_number() ? parsed : value;
}

// 1000.0 as 1000.
Json WholeNumber(const Json& value) {
  if (!value.is_number_float()) return value;
  const double number = value.get<double>();
  if (std::floor(number) != number || std::abs(number) >= 9e15) return value;
  return static_cast<int64_t>(number);
}

bool AsksForNothing(const ForeignKey& declared, const Json& value) {
  const Json plain = Plain(value);
  for (const Json& neutral : declared.neutral) {
    if (plain == neutral || value == neutral) return true;
  }
  return value.is_object() && value.contains("enabled") && value.at("enabled") == false;
}

}  // namespace

std::string Printed(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> KeysOf(const std::string& reason) {
  std::vector<std::string> keys;
  for (size_t at = 0; at <= reason.size();) {
    const size_t end = std::min(reason.find(", ", at), reason.size());
    keys.push_back(reason.substr(at, end - at));
    at = end + 2;
  }
  return keys;
}

const char* FateName(KeyFate fate) {
  switch (fate) {
    case KeyFate::kHonoured:
      return "honoured";
    case KeyFate::kTranslated:
      return "translated";
    case KeyFate::kNoEffect:
      return "no-effect";
    case KeyFate::kRefused:
      return "refused";
  }
  return "";
}

ForeignKey Becomes(std::string name, std::string ours, KeyConversion convert) {
  return {.name = std::move(name),
          .fate = KeyFate::kTranslated,
          .reason = std::move(ours),
          .convert = std::move(convert)};
}

ForeignKey Renamed(std::string name, std::string ours) {
  return Becomes(std::move(name), ours, [ours](const Json& value) -> StatusOr<Json> {
    return Json{{ours, value}};
  });
}

ForeignKey Read(std::string name, std::string ours) {
  return Becomes(std::move(name), std::move(ours), nullptr);
}

ForeignKey NoEffect(std::string name, std::string reason) {
  return {.name = std::move(name), .fate = KeyFate::kNoEffect, .reason = std::move(reason)};
}

ForeignKey Refused(std::string name, std::string reason, std::vector<Json> neutral) {
  return {.name = std::move(name),
          .fate = KeyFate::kRefused,
          .reason = std::move(reason),
          .neutral = std::move(neutral)};
}

ForeignKey Switch(ForeignKey key) {
  key.is_switch = true;
  return key;
}

ForeignTable& Add(ForeignTable& table, const std::vector<std::string>& names,
                  const std::function<ForeignKey(std::string)>& declare) {
  for (const std::string& name : names) table.push_back(declare(name));
  return table;
}

Status FirstRefusal(const std::vector<KeyVerdict>& verdicts) {
  for (const KeyVerdict& verdict : verdicts) {
    if (verdict.fate == KeyFate::kRefused) return verdict.failure;
  }
  return OkStatus();
}

// --- What stands there ---------------------------------------------------------------------------

ForeignKeys::ForeignKeys(const Json& object, const std::string& source, const ForeignTable& table)
    : ForeignKeys(
          object, [source](const std::string& key) { return Concat(source, ": '", key, "'"); },
          table) {
  if (!object.is_object()) {
    Judge("", KeyFate::kRefused, "", InvalidArgument(source, ": a JSON object is needed"));
  }
}

ForeignKeys::ForeignKeys(const Json& object, Namer name_of, const ForeignTable& table)
    : name_of_(std::move(name_of)), table_(table) {
  if (object.is_object()) Walk(object, "");
}

bool ForeignKeys::IsSection(const std::string& key) const {
  const std::string prefix = key + ".";
  return std::any_of(table_.begin(), table_.end(),
                     [&](const ForeignKey& k) { return k.name.rfind(prefix, 0) == 0; });
}

void ForeignKeys::Walk(const Json& object, const std::string& section) {
  for (const auto& [name, value] : object.items()) {
    const std::string key = section.empty() ? name : Concat(section, ".", name);
    if (!IsSection(key)) {
      Meet(key, value);
    } else if (value.is_object()) {
      given_[key] = {&value, nullptr, true};
      Walk(value, key);
    } else if (!IsLeft(value)) {
      Judge(key, KeyFate::kRefused, "");
      Fail(key, Concat("must be an object, not ", Printed(value)));
    }
  }
}

void ForeignKeys::Meet(const std::string& key, const Json& value) {
  const auto declared = std::find_if(table_.begin(), table_.end(),
                                     [&](const ForeignKey& k) { return k.name == key; });
  if (declared == table_.end()) {
    const std::string text = DidYouMean(key.substr(key.rfind('.') + 1), KnownNear(key));
    const std::string where = name_of_(key);
    const size_t quote = where.rfind(": '");
    Judge(key, KeyFate::kRefused, "unknown key" + text,
          InvalidArgument(quote == std::string::npos ? where : where.substr(0, quote),
                          ": unknown key '", key, "'", text));
    return;
  }
  given_[key] = {&value, &*declared};
  if (IsLeft(value)) return Judge(key, KeyFate::kNoEffect, kLeft);
  Judge(key, declared->fate, declared->reason);
  if (declared->fate == KeyFate::kRefused) {
    if (AsksForNothing(*declared, value)) {
      Ignore(key, "asks for what holds anyway: " + declared->reason);
    } else {
      Judge(
          key, KeyFate::kRefused, declared->reason,
          InvalidArgument(name_of_(key), " ",
                          declared->neutral.empty() ? std::string("is refused: ")
                                                    : Concat("is ", Printed(value), ", refused: "),
                          declared->reason));
    }
  } else if (declared->convert != nullptr) {
    Convert(*declared, value);
  }
}

// Names in the same section.
std::vector<std::string> ForeignKeys::KnownNear(const std::string& key) const {
  const std::string section = key.substr(0, key.rfind('.') + 1);
  std::vector<std::string> known;
  for (const ForeignKey& k : table_) {
    if (k.name.rfind(section, 0) == 0) known.push_back(k.name.substr(section.size()));
  }
  return known;
}

void ForeignKeys::Convert(const ForeignKey& declared, const Json& value) {
  StatusOr<Json> keys = declared.convert(value);
  if (!keys.ok()) return Fail(declared.name, Message(keys.status()));
  if (keys->is_null() || keys->empty()) {
    return Ignore(declared.name, "asks for what holds anyway");
  }
  for (auto& [ours, to] : keys->items()) {
    const Option* option = FindRunConfigKey(ours);
    if (option == nullptr) continue;  // of the reader's own
    if (option->kind != Option::Kind::kText && option->kind != Option::Kind::kTexts) to = Plain(to);
    if (option->kind == Option::Kind::kInteger) to = WholeNumber(to);
    const std::string where = name_of_(declared.name);
    const StatusOr<Json> converted = option->Convert(to, where);
    if (!converted.ok()) {
      const std::string message = Message(converted.status());
      return Fail(declared.name, message.substr(std::min(where.size() + 1, message.size())));
    }
  }
  Merge(declared.name, *keys);
}

void ForeignKeys::Merge(const std::string& key, const Json& keys) {
  for (const auto& [ours, value] : keys.items()) {
    const auto [origin, first] = origin_.emplace(ours, key);
    Json& mine = result_.keys[ours];
    if (first) {
      mine = value;
    } else if (mine != value) {
      const std::string text = Concat(" are one key (", ours, ") with two values");
      Judge(key, KeyFate::kRefused, Concat("'", origin->second, "' and '", key, "'", text),
            InvalidArgument(name_of_(origin->second), " and '", key, "'", text));
    }
  }
}

KeyVerdict* ForeignKeys::VerdictOf(const std::string& key) {
  const auto found = std::find_if(result_.verdicts.begin(), result_.verdicts.end(),
                                  [&](const KeyVerdict& v) { return v.key == key; });
  return found == result_.verdicts.end() ? nullptr : &*found;
}

void ForeignKeys::Judge(const std::string& key, KeyFate fate, std::string reason, Status failure) {
  KeyVerdict verdict = {key, fate, std::move(reason), std::move(failure)};
  if (KeyVerdict* known = VerdictOf(key)) {
    *known = std::move(verdict);
  } else {
    result_.verdicts.push_back(std::move(verdict));
  }
}

// What a key had become is not to be.
void ForeignKeys::Withdraw(const std::string& key) {
  for (auto it = origin_.begin(); it != origin_.end();) {
    if (it->second != key) {
      ++it;
      continue;
    }
    result_.keys.erase(it->first);
    it = origin_.erase(it);
  }
}

// A section, or a key that is not there, is judged as well: the combination is at fault.
void ForeignKeys::Fail(const std::string& key, std::string_view text) {
  const KeyVerdict* known = VerdictOf(key);
  if (known != nullptr && !known->failure.ok()) return;
  Withdraw(key);
  Judge(key, KeyFate::kRefused, std::string(text), InvalidArgument(name_of_(key), " ", text));
}

void ForeignKeys::Ignore(const std::string& key, std::string_view reason) {
  if (given_.count(key) == 0) return;
  given_.at(key).read = true;
  Withdraw(key);
  const KeyVerdict* known = VerdictOf(key);
  if (known != nullptr && known->failure.ok()) Judge(key, KeyFate::kNoEffect, std::string(reason));
}

void ForeignKeys::IgnoreSection(const std::string& section, std::string_view reason) {
  for (const auto& [key, given] : given_) {
    if (key.rfind(section + ".", 0) == 0 && given.declared != nullptr) Ignore(key, reason);
  }
}

// --- Values --------------------------------------------------------------------------------------

bool ForeignKeys::Has(const std::string& key) const { return given_.count(key) > 0; }

const Json* ForeignKeys::Find(const std::string& key) {
  const auto found = given_.find(key);
  if (found == given_.end()) return nullptr;
  found->second.read = true;
  return IsLeft(*found->second.value) ? nullptr : found->second.value;
}

std::optional<bool> ForeignKeys::Bool(const std::string& key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const Json plain = Plain(*value);
  if (plain.is_boolean()) return plain.get<bool>();
  Fail(key, Concat("must be true or false, not ", Printed(*value)));
  return std::nullopt;
}

std::optional<int64_t> ForeignKeys::Integer(const std::string& key, int64_t least) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const Json number = WholeNumber(Plain(*value));
  if (!number.is_number_integer()) {
    Fail(key, Concat("must be an integer, not ", Printed(*value)));
    return std::nullopt;
  }
  if (number.get<int64_t>() < least) {
    Fail(key, Concat("must be at least ", least, ", not ", Printed(*value)));
    return std::nullopt;
  }
  return number.get<int64_t>();
}

std::optional<double> ForeignKeys::Number(const std::string& key, double least) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const Json number = Plain(*value);
  if (!number.is_number()) {
    Fail(key, Concat("must be a number, not ", Printed(*value)));
    return std::nullopt;
  }
  if (!(number.get<double>() >= least)) {
    Fail(key, Concat("must be at least ", least, ", not ", Printed(*value)));
    return std::nullopt;
  }
  return number.get<double>();
}

std::optional<std::string> ForeignKeys::String(const std::string& key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(key, Concat("must be a string, not ", Printed(*value)));
  return std::nullopt;
}

std::optional<std::vector<double>> ForeignKeys::Numbers(const std::string& key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const Json& item : *value) {
    if (value->is_array() && item.is_number()) numbers.push_back(item.get<double>());
  }
  if (value->is_array() && numbers.size() == value->size()) return numbers;
  Fail(key, Concat("must be a list of numbers, not ", Printed(*value)));
  return std::nullopt;
}

// Whether one of the keys that a declaration names was put, or it names none of a run.
bool ForeignKeys::BecameSomething(const ForeignKey& declared) const {
  bool names_keys = false;
  for (const std::string& ours : KeysOf(declared.reason)) {
    if (result_.keys.contains(ours)) return true;
    names_keys = names_keys || FindRunConfigKey(ours) != nullptr;
  }
  return !names_keys;
}

Translation ForeignKeys::Finish() && {
  for (const auto& [key, given] : given_) {
    if (given.declared == nullptr || given.declared->convert != nullptr) continue;
    if (given.declared->fate != KeyFate::kTranslated || IsLeft(*given.value)) continue;
    if (!given.read) {
      Fail(key, "means nothing beside the other keys");
    } else if (!BecameSomething(*given.declared)) {
      Ignore(key, "asks for what holds anyway");
    }
  }
  return std::move(result_);
}

}  // namespace tessera::train
