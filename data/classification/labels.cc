// SPDX-License-Identifier: Apache-2.0
#include "data/classification/labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/nearest_name.h"
#include "nlohmann/json.hpp"

namespace tessera::data {
namespace {

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

bool ByValueOrText(const std::string& a, const std::string& b) {
  const auto x = ParseNumber(a);
  const auto y = ParseNumber(b);
  if (x && y && *x != *y) return *x < *y;
  if (x.has_value() != y.has_value()) return x.has_value();
  return a < b;
}

std::string_view WithoutBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

std::string LabelName(std::string_view text) {
  const std::string_view bare = WithoutBlanks(text);
  // "007" may be a code.
  if (bare.find_first_of(".eE+") == std::string_view::npos) return std::string(bare);
  const std::optional<double> number = ParseNumber(bare.substr(bare.starts_with('+') ? 1 : 0));
  constexpr double kLargest = 1e15;
  if (!number || *number != std::floor(*number) || std::abs(*number) > kLargest) {
    return std::string(bare);
  }
  return std::to_string(static_cast<int64_t>(*number));
}

Status LabelReader::Add(std::span<const std::string> fields, const std::string& where) {
  if (num_fields_ == 0) return OkStatus();
  if (num_fields_ > 1) {
    for (const std::string& field : fields) {
      const std::string name = LabelName(field);
      const bool yes = name == "1" || name == "true" || name == "True";
      if (!yes && name != "0" && name != "false" && name != "False") {
        return InvalidArgument(where, ": of several labels each must be 0 or 1, not '", field, "'");
      }
      values_.push_back(yes ? 1 : 0);
    }
    return OkStatus();
  }
  const std::string field = LabelName(fields[0]);
  if (field.empty()) return InvalidArgument(where, ": the label is empty");
  const auto [found, is_new] = index_.emplace(field, std::ssize(index_));
  if (is_new) first_seen_.push_back(where);
  values_.push_back(static_cast<double>(found->second));
  const std::optional<double> number = ParseNumber(field);
  all_numbers_ = all_numbers_ && number.has_value();
  if (!all_numbers_) return OkStatus();
  all_whole_ = all_whole_ && *number == std::floor(*number);
  numbers_.push_back(*number);
  return OkStatus();
}

LabelColumn LabelReader::Finish() && {
  LabelColumn column;
  column.num_fields = num_fields_;
  if (num_fields_ == 0) {
    column.kind = LabelKind::kNone;
    return column;
  }
  if (num_fields_ > 1) {
    column.kind = LabelKind::kAnswers;
    column.values = std::move(values_);
    return column;
  }
  if (all_numbers_ && !all_whole_) {
    column.kind = LabelKind::kNumber;
    column.values = std::move(numbers_);
    return column;
  }
  for (const auto& [name, place] : index_) column.names.push_back(name);
  std::sort(column.names.begin(), column.names.end(), ByValueOrText);
  std::vector<double> sorted(column.names.size());
  for (size_t i = 0; i < column.names.size(); ++i) {
    const auto place = static_cast<size_t>(index_.at(column.names[i]));
    sorted[place] = static_cast<double>(i);
    column.first_seen.push_back(first_seen_[place]);
  }
  for (double& value : values_) value = sorted[static_cast<size_t>(value)];
  column.values = std::move(values_);
  return column;
}

nlohmann::json LabelColumn::ToJson() const {
  return {{"kind", static_cast<int>(kind)},
          {"names", names},
          {"first_seen", first_seen},
          {"fields", num_fields},
          {"values", values}};
}

StatusOr<LabelColumn> LabelColumn::FromJson(const nlohmann::json& json) {
  const bool whole = json.is_object() && json.contains("kind") &&
                     json["kind"].is_number_integer() && json.contains("names") &&
                     json["names"].is_array() && json.contains("first_seen") &&
                     json["first_seen"].is_array() && json.contains("fields") &&
                     json["fields"].is_number_integer() && json["fields"].get<int64_t>() >= 0 &&
                     json.contains("values") && json["values"].is_array();
  if (!whole) return DataLoss("the labels of the cached tokens are damaged");
  LabelColumn column;
  column.kind = static_cast<LabelKind>(
      std::clamp(json["kind"].get<int64_t>(), int64_t{0}, static_cast<int64_t>(LabelKind::kNone)));
  column.num_fields = json["fields"].get<int64_t>();
  for (const auto& name : json["names"]) {
    if (name.is_string()) column.names.push_back(name.get<std::string>());
  }
  for (const auto& place : json["first_seen"]) {
    if (place.is_string()) column.first_seen.push_back(place.get<std::string>());
  }
  for (const auto& value : json["values"]) {
    if (!value.is_number()) return DataLoss("the labels of the cached tokens are damaged");
    column.values.push_back(value.get<double>());
    const bool named = column.kind != LabelKind::kNames ||
                       (column.values.back() >= 0 &&
                        column.values.back() < static_cast<double>(column.names.size()));
    if (!named) return DataLoss("the labels of the cached tokens are damaged");
  }
  return column;
}

Status UseNames(const std::vector<std::string>& names, LabelColumn* column) {
  std::vector<double> place(column->names.size());
  for (size_t i = 0; i < column->names.size(); ++i) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return LabelName(name) == column->names[i];
    });
    if (found == names.end()) {
      return InvalidArgument(i < column->first_seen.size() ? column->first_seen[i] : "labels",
                             ": unknown label '", column->names[i], "'",
                             DidYouMean(column->names[i], names));
    }
    place[i] = static_cast<double>(found - names.begin());
  }
  for (double& value : column->values) value = place[static_cast<size_t>(value)];
  column->names = names;
  column->first_seen.clear();
  return OkStatus();
}

Status UseNumbers(LabelColumn* column) {
  std::vector<double> numbers;
  for (size_t i = 0; i < column->names.size(); ++i) {
    const std::optional<double> number = ParseNumber(column->names[i]);
    if (!number) {
      return InvalidArgument(i < column->first_seen.size() ? column->first_seen[i] : "labels",
                             ": '", column->names[i], "' is no number");
    }
    numbers.push_back(*number);
  }
  for (double& value : column->values) value = numbers[static_cast<size_t>(value)];
  column->kind = LabelKind::kNumber;
  column->names.clear();
  column->first_seen.clear();
  return OkStatus();
}

}  // namespace tessera::data
