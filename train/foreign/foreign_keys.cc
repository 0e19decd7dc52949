// SPDX-License-Identifier: Apache-2.0
#include "train/foreign/foreign_keys.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/nearest_name.h"
#include "nlohmann/json.hpp"
#include "train/config/run_config.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

bool AsksForNothing(const ForeignKey& declared, const Json& value) {
  const Json plain = Plain(value);
  for (const Json& neutral : declared.neutral) {
    if (plain == neutral || value == neutral) return true;
  }
  return value.is_object() && value.contains("enabled") && value.at("enabled") == false;
}

}  // namespace

bool IsLeftToRun(const Json& value) {
  return value.is_null() || value == "auto" || value == "None";  // Python's, in a flag
}

Json Plain(const Json& value) {
  if (!value.is_string()) return value;
  const std::string text = value.get<std::string>();
  if (text == "True" || text == "true") return true;
  if (text == "False" || text == "false") return false;
  const Json parsed = Option::FromText(Option::Kind::kNumber, text);
  return parsed.is_number() ? parsed : value;
}

Json PlainAs(Option::Kind kind, const Json& value) {
  if (kind == Option::Kind::kBool) return Truth(value);
  return kind == Option::Kind::kText || kind == Option::Kind::kTexts ? value : Plain(value);
}

std::string Printed(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> KeysOf(const std::string& reason) { return absl::StrSplit(reason, ", "); }

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
    case KeyFate::kDefault:
      return "default";
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

ForeignKey Refused(std::string name, std::string reason, std::vector<JsonMember> neutral) {
  return {.name = std::move(name),
          .fate = KeyFate::kRefused,
          .reason = std::move(reason),
          .neutral = std::move(neutral)};
}

ForeignKey Switch(ForeignKey key) {
  key.is_switch = true;
  return key;
}

ForeignKey List(ForeignKey key) {
  key.is_list = true;
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

// --- Given keys -------------------------------------------------------------------------------

ForeignKeys::ForeignKeys(const Json& object, const std::string& source, const ForeignTable& table)
    : ForeignKeys(
          object, [source](const std::string& key) { return Concat(source, ": '", key, "'"); },
          table) {
  if (!object.is_object()) {
    Judge("", KeyFate::kRefused, "", InvalidArgument(source, ": a JSON object is needed"));
  }
}

ForeignKeys::ForeignKeys(const Json& object, Namer name_of, const ForeignTable& table,
                         const Translation* own)
    : name_of_(std::move(name_of)), table_(table), beside_own_keys_(own != nullptr) {
  if (own != nullptr) result_ = *own;
  for (const auto& [key, value] : result_.keys->items()) origin_[key] = key;
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
    const ForeignKey* const declared = Declared(key);
    if (!IsSection(key) || (declared != nullptr && !value.is_object())) {
      Meet(key, value);
    } else if (value.is_object()) {
      // Of a section that means something by being there, code reads what.
      const bool means = declared != nullptr && declared->convert == nullptr;
      given_[key] = {&value, means ? declared : nullptr, !means};
      if (means) Judge(key, declared->fate, declared->reason);
      Walk(value, key);
    } else if (!IsLeftToRun(value)) {
      Judge(key, KeyFate::kRefused, "");
      Fail(key, Concat("must be an object, not ", Printed(value)));
    }
  }
}

const ForeignKey* ForeignKeys::Declared(const std::string& key) const {
  const auto found = std::find_if(table_.begin(), table_.end(),
                                  [&](const ForeignKey& k) { return k.name == key; });
  return found == table_.end() ? nullptr : &*found;
}

void ForeignKeys::Meet(const std::string& key, const Json& value) {
  const ForeignKey* const declared = Declared(key);
  if (declared == nullptr) {
    const std::string text = DidYouMean(key.substr(key.rfind('.') + 1), KnownNear(key));
    const std::string where = name_of_(key);
    const size_t quote = where.rfind(": '");
    Judge(key, KeyFate::kRefused, "unknown key" + text,
          InvalidArgument(quote == std::string::npos ? where : where.substr(0, quote),
                          ": unknown key '", key, "'", text));
    return;
  }
  given_[key] = {&value, declared};
  if (IsLeftToRun(value)) return Judge(key, KeyFate::kNoEffect, kLeftToRun);
  Judge(key, declared->fate, declared->reason);
  if (declared->fate == KeyFate::kRefused) {
    if (AsksForNothing(*declared, value)) {
      Ignore(key, Concat(kHoldsAnyway, ": ", declared->reason));
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
  if (!beside_own_keys_ || !section.empty()) return known;
  for (const Option* option : RunConfigKeys()) known.push_back(option->key);
  return known;
}

void ForeignKeys::Convert(const ForeignKey& declared, const Json& value) {
  StatusOr<Json> keys = declared.convert(value);
  if (!keys.ok()) return Fail(declared.name, Message(keys.status()));
  if (keys->is_null() || keys->empty()) {
    return Ignore(declared.name, kHoldsAnyway);
  }
  for (auto& [ours, to] : keys->items()) {
    const Option* option = FindRunConfigKey(ours);
    if (option == nullptr) continue;  // of the reader's own
    to = PlainAs(option->kind, to);
    const std::string where = name_of_(declared.name);
    const StatusOr<Json> converted = option->Convert(to, where);
    if (!converted.ok()) {
      const std::string message = Message(converted.status());
      return Fail(declared.name, message.substr(std::min(where.size() + 1, message.size())));
    }
    if (!converted->is_null()) to = *converted;
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
    result_.keys->erase(it->first);
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
  const auto given = given_.find(key);
  const auto own = origin_.find(key);
  if (given == given_.end() && (own == origin_.end() || own->second != key)) return;
  if (given != given_.end()) given->second.read = true;
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

void ForeignKeys::Put(const std::string& ours, const Json& value) { (*result_.keys)[ours] = value; }

bool ForeignKeys::Has(const std::string& key) const { return given_.count(key) > 0; }

const Json* ForeignKeys::Find(const std::string& key) {
  const auto found = given_.find(key);
  if (found == given_.end()) return nullptr;
  found->second.read = true;
  return IsLeftToRun(*found->second.value) ? nullptr : found->second.value;
}

template <typename T>
std::optional<T> ForeignKeys::Get(const std::string& key, const OptionNotes& notes) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  constexpr Option::Kind kKind = KindOf<T>();
  const Json plain = PlainAs(kKind, *value);
  const StatusOr<Json> converted = Option::Convert(kKind, notes, plain, "");
  if (converted.ok()) return converted->get<T>();
  Fail(key, Message(converted.status()).substr(1));
  return std::nullopt;
}

std::optional<bool> ForeignKeys::Bool(const std::string& key) { return Get<bool>(key); }

std::optional<int64_t> ForeignKeys::Integer(const std::string& key, int64_t least) {
  return Get<int64_t>(key, {.least = static_cast<double>(least)});
}

std::optional<double> ForeignKeys::Number(const std::string& key, double least) {
  return Get<double>(key, {.least = least});
}

std::optional<std::string> ForeignKeys::String(const std::string& key) {
  return Get<std::string>(key);
}

std::optional<std::vector<double>> ForeignKeys::Numbers(const std::string& key) {
  return Get<std::vector<double>>(key);
}

// Whether one of the keys that a declaration names was put, or it names none of a run.
bool ForeignKeys::BecameSomething(const ForeignKey& declared) const {
  if (result_.keys->contains(declared.name)) return true;  // for whoever knows the rest of the run
  bool names_keys = false;
  for (const std::string& ours : KeysOf(declared.reason)) {
    if (result_.keys->contains(ours) || result_.shares_of_lr->contains(ours)) return true;
    names_keys = names_keys || FindRunConfigKey(ours) != nullptr;
  }
  return !names_keys;
}

Translation ForeignKeys::Finish() && {
  for (const auto& [key, given] : given_) {
    if (given.declared == nullptr || given.declared->convert != nullptr) continue;
    if (given.declared->fate != KeyFate::kTranslated || IsLeftToRun(*given.value)) continue;
    if (!given.read) {
      Fail(key, "means nothing beside the other keys");
    } else if (!BecameSomething(*given.declared)) {
      Ignore(key, kHoldsAnyway);
    }
  }
  return std::move(result_);
}

}  // namespace tessera::train
