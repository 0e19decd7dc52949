#include "train/config/foreign_keys.h"

#include <algorithm>
#include <cmath>

#include "core/nearest_name.h"

namespace tessera::train {

using Json = nlohmann::json;

ForeignKeys::ForeignKeys(const Json& object, const std::string& source, const std::string& section,
                         Status* status)
    : object_(object), source_(source), section_(section), status_(status) {
  if (object_.is_object()) return;
  object_ = Json::object();
  if (!status_->ok()) return;
  *status_ = section_.empty()
                 ? InvalidArgument(source_, ": a JSON object is needed")
                 : InvalidArgument(source_, ": '", section_, "' must be an object, not ",
                                   object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string ForeignKeys::Path(std::string_view key) const {
  return section_.empty() ? std::string(key) : Concat(section_, ".", key);
}

void ForeignKeys::Fail(const char* key, std::string_view text) {
  if (status_->ok()) *status_ = InvalidArgument(source_, ": '", Path(key), "' ", text);
}

const Json* ForeignKeys::Find(const char* key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  const auto found = object_.find(key);
  if (found == object_.end() || found->is_null() || *found == "auto") return nullptr;
  return &*found;
}

std::optional<bool> ForeignKeys::Bool(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(key, Concat("must be true or false, not ", value->dump()));
  return std::nullopt;
}

std::optional<int64_t> ForeignKeys::Integer(const char* key, int64_t least) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(std::floor(number) == number && std::abs(number) < 9e15)) {
    Fail(key, Concat("must be an integer, not ", value->dump()));
    return std::nullopt;
  }
  if (number < static_cast<double>(least)) {
    Fail(key, Concat("must be at least ", least, ", not ", value->dump()));
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

std::optional<double> ForeignKeys::Number(const char* key, double least) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Fail(key, Concat("must be a number, not ", value->dump()));
    return std::nullopt;
  }
  if (!(value->get<double>() >= least)) {
    Fail(key, Concat("must be at least ", least, ", not ", value->dump()));
    return std::nullopt;
  }
  return value->get<double>();
}

std::optional<std::string> ForeignKeys::String(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Fail(key, Concat("must be a string, not ", value->dump()));
  return std::nullopt;
}

std::optional<std::vector<double>> ForeignKeys::Numbers(const char* key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const Json& item : *value) {
    if (value->is_array() && item.is_number()) numbers.push_back(item.get<double>());
  }
  if (value->is_array() && numbers.size() == value->size()) return numbers;
  Fail(key, Concat("must be a list of numbers, not ", value->dump()));
  return std::nullopt;
}

ForeignKeys ForeignKeys::Section(const char* key) {
  const Json* value = Find(key);
  return ForeignKeys(value == nullptr ? Json::object() : *value, source_, Path(key), status_);
}

void ForeignKeys::OnlyIf(const char* key, const Json& value, std::string_view reason) {
  const Json* given = Find(key);
  if (given == nullptr || *given == value) return;
  Fail(key, Concat("is ", given->dump(), ", which Tessera does not do: ", reason));
}

void ForeignKeys::Refuse(const char* key, std::string_view reason) {
  if (Find(key) != nullptr) Fail(key, Concat("is not taken: ", reason));
}

void ForeignKeys::OnlyDisabled(const char* key, std::string_view reason) {
  const Json* given = Find(key);
  if (given == nullptr || *given == false) return;
  if (given->is_object() && given->contains("enabled") && (*given)["enabled"] == false) return;
  Fail(key, Concat("is not taken: ", reason));
}

void ForeignKeys::Finish() {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    Fail(key.c_str(), Concat("is not a key that is known", DidYouMean(key, known_)));
    return;
  }
}

}  // namespace tessera::train
