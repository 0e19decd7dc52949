// SPDX-License-Identifier: Apache-2.0
#include "serve/fields.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "base/json_ordered.h"
#include "base/nearest_name.h"

namespace tessera::serve {
namespace {

// Fields of llama.cpp's server and Ollama, with those of ours that a client wants instead. What
// they mean differs: llama.cpp's penalty is of the last 64 tokens alone.
constexpr std::pair<std::string_view, const char*> kElsewhere[] = {
    {"repeat_penalty", "repetition_penalty"},
    {"n_predict", "max_tokens"},
    {"num_predict", "max_tokens"},
    {"n_probs", "logprobs"},
    {"grammar", "response_format"},
    {"json_schema", "response_format"},
};

// "; use 'max_tokens'" where `known` has it, else the nearest name.
std::string HintFor(const std::string& key, const std::set<std::string>& known) {
  for (const auto& [theirs, ours] : kElsewhere) {
    if (key == theirs && known.contains(ours)) return Concat("; use '", ours, "'");
  }
  return DidYouMean(key, {known.begin(), known.end()});
}

}  // namespace

using nlohmann::ordered_json;

Fields::Fields(const ordered_json& body) : body_(body) {
  if (!body.is_object()) status_ = InvalidArgument("the body must be a JSON object");
}

void Fields::Fail(const std::string& key, const Status& status) {
  if (!status_.ok()) return;
  failed_ = key;
  status_ = status;
}

void Fields::Fail(const std::string& key, const std::string& message) {
  Fail(key, InvalidArgument(key, ": ", message));
}

const ordered_json* Fields::Any(const std::string& key) {
  asked_.insert(key);
  if (!body_.is_object()) return nullptr;
  const auto field = body_.find(key);
  return field == body_.end() || field->is_null() ? nullptr : &*field;
}

nlohmann::json Fields::Convert(Option::Kind kind, const OptionNotes& notes,
                               const std::string& key) {
  const ordered_json* const field = Any(key);
  if (field == nullptr) return {};
  nlohmann::json value = *field;
  if (const std::string_view big = BigInteger(*field); !big.empty()) {
    value = std::strtod(std::string(big).c_str(), nullptr);
  }
  const auto converted = Option::Convert(kind, notes, value, key + ":");
  if (converted.ok()) return *converted;
  Fail(key, converted.status());
  return {};
}

std::optional<int64_t> Fields::Integer(const std::string& key, int64_t least, int64_t most) {
  OptionNotes notes = {.least = static_cast<double>(least)};
  if (most != std::numeric_limits<int64_t>::max()) notes.most = static_cast<double>(most);
  return Get<int64_t>(key, notes);
}

std::optional<std::vector<std::string>> Fields::Texts(const std::string& key, size_t most) {
  auto texts = Get<std::vector<std::string>>(key);
  if (!texts || texts->size() <= most) return texts;
  Fail(key, Concat("must be at most ", most, " texts, not ", texts->size()));
  return std::nullopt;
}

void Fields::Setting(const Option& option, nlohmann::json* asked) {
  std::vector<std::string> names = {option.key};
  for (const OptionAlias& alias : option.notes.aliases) names.push_back(alias.name);
  std::string given;
  for (const std::string& name : names) {
    const nlohmann::json converted = Convert(option.kind, option.notes, name);
    if (converted.is_null()) continue;
    if (!given.empty() && (*asked)[option.key] != converted) {
      return Fail(name, Concat("is given as ", given, " too, with another value"));
    }
    given = name;
    (*asked)[option.key] = converted;
  }
}

void Fields::Allow(std::initializer_list<const char*> keys) {
  for (const char* key : keys) asked_.insert(key);
}

void Fields::Refuse(const std::string& key, const std::string& why, const ordered_json& neutral) {
  const ordered_json* const field = Any(key);
  if (field == nullptr || *field == neutral) return;
  const bool no = *field == ordered_json(false) && neutral != ordered_json(true);
  if (no || *field == ordered_json("") || (field->is_structured() && field->empty())) return;
  Fail(key, why);
}

Status Fields::Finish() {
  if (!status_.ok() || !body_.is_object()) return status_;
  for (const auto& [key, value] : body_.items()) {
    if (asked_.contains(key) || value.is_null()) continue;
    Fail(key, Concat("there is no such field here", HintFor(key, asked_)));
    return status_;
  }
  return status_;
}

}  // namespace tessera::serve
