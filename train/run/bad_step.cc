// SPDX-License-Identifier: Apache-2.0
#include "train/run/bad_step.h"

#include <limits>
#include <utility>

#include "base/text_builder.h"
#include "dist/comm/agreement.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostNamed = 8;  // samples in a line
constexpr std::string_view kKinds[] = {"result", "gradient", "sum"};

Json ToJson(const NumbersSummary& s) {
  Json json = {{"shape", std::vector<int64_t>(s.shape.begin(), s.shape.end())},
               {"dtype", DTypeName(s.dtype)},
               {"not_finite", s.not_finite}};
  if (!s.finite()) json.update({{"first", s.first}, {"value", Concat(s.value)}});
  json.update({{"greatest", s.greatest}, {"root_mean_square", s.root_mean_square}});
  return json;
}

NumbersSummary SummaryOf(const Json& json) {
  NumbersSummary s;
  for (const int64_t size : json.at("shape").get<std::vector<int64_t>>()) s.shape.push_back(size);
  s.dtype = *ParseDType(json.at("dtype").get<std::string>());
  s.not_finite = json.at("not_finite");
  if (!s.finite()) {
    s.first = json.at("first");
    s.value = std::strtod(json.at("value").get<std::string>().c_str(), nullptr);
  }
  s.greatest = json.at("greatest");
  s.root_mean_square = json.at("root_mean_square");
  return s;
}

Json ToJson(const BadNumber& bad) {
  Json json = {{"micro_batch", bad.place.micro_batch},
               {"pass", bad.place.backward ? "backward" : "forward"},
               {"chunk", bad.place.chunk},
               {"operation_number", bad.place.operation},
               {"operation", bad.operation},
               {"module", bad.module},
               {"what", kKinds[static_cast<size_t>(bad.kind)]},
               {"index", bad.index},
               {"numbers", ToJson(bad.numbers)},
               {"operands", Json::array()}};
  for (const NumbersSummary& operand : bad.operands) json["operands"].push_back(ToJson(operand));
  return json;
}

BadNumber BadNumberOf(const Json& json) {
  BadNumber bad;
  while (json.at("what") != kKinds[static_cast<size_t>(bad.kind)]) {
    bad.kind = static_cast<BadNumber::Kind>(static_cast<int>(bad.kind) + 1);
  }
  bad.place = {.micro_batch = json.at("micro_batch"),
               .backward = json.at("pass") == "backward",
               .chunk = json.at("chunk"),
               .operation = json.at("operation_number")};
  bad.operation = json.at("operation");
  bad.module = json.at("module");
  bad.index = json.at("index");
  bad.numbers = SummaryOf(json.at("numbers"));
  for (const Json& operand : json.at("operands")) bad.operands.push_back(SummaryOf(operand));
  return bad;
}

Json ToJson(const std::vector<BadSample>& samples) {
  Json json = Json::array();
  for (const BadSample& sample : samples) {
    Json& entry = json.emplace_back(Json{{"index", sample.index}, {"position", sample.position}});
    if (!sample.name.empty()) entry["name"] = sample.name;
    if (!sample.text.empty()) entry["text"] = sample.text;
  }
  return json;
}

}  // namespace

std::string SamplesText(const std::vector<BadSample>& samples) {
  if (samples.empty()) return "";
  std::string text = samples.size() == 1 ? " (sample " : " (samples ";
  for (size_t i = 0; i < samples.size() && static_cast<int64_t>(i) < kMostNamed; ++i) {
    text += Concat(i == 0 ? "" : ", ", samples[i].index);
    if (!samples[i].name.empty()) text += " " + samples[i].name;
  }
  return text + (std::ssize(samples) > kMostNamed ? ", ...)" : ")");
}

std::string BadStep::Text(const dist::Mesh& mesh) const {
  std::string where;
  if (mesh.world()->size() > 1) where += Concat(" on rank ", rank);
  if (number.operation.empty()) {
    return Concat("every operation's numbers are finite", where, "; the gradient of ",
                  number.module, ", a sum over micro-batches, ", number.numbers);
  }
  return Concat("it begins", where, " in the ", number.place.backward ? "backward" : "forward",
                " pass of micro-batch ", number.place.micro_batch, SamplesText(samples), ": ",
                number);
}

Json BadStep::ToJson() const {
  Json json = {{"rank", rank}};
  json.update(train::ToJson(number));
  json["samples"] = train::ToJson(samples);
  return json;
}

std::optional<BadStep> FirstOfRanks(const dist::Mesh& mesh, const std::optional<BadNumber>& mine) {
  std::optional<BadStep> first;
  int64_t rank = 0;
  for (const std::string& text :
       dist::GatherStrings(*mesh.world(), mine ? ToJson(*mine).dump() : "")) {
    const int64_t of = rank++;
    if (text.empty()) continue;
    BadStep found = {.rank = of, .number = BadNumberOf(Json::parse(text))};
    if (!first || found.number.place < first->number.place) first = std::move(found);
  }
  return first;
}

}  // namespace tessera::train
