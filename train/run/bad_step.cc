// SPDX-License-Identifier: Apache-2.0
#include "train/run/bad_step.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text_builder.h"
#include "dist/comm/agreement.h"
#include "nlohmann/json.hpp"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostNamed = 8;  // samples in a line
constexpr std::string_view kKinds[] = {"result", "gradient", "sum"};
constexpr std::string_view kPasses[] = {"forward", "backward"};

Json ToJson(const NumbersSummary& s) {
  Json json = {{"shape", std::vector<int64_t>(s.shape.begin(), s.shape.end())},
               {"dtype", DTypeName(s.dtype)},
               {"not_finite", s.not_finite}};
  if (!s.finite()) json.update({{"first", s.first}, {"value", Concat(s.value)}});
  json.update({{"greatest", s.greatest}, {"root_mean_square", s.root_mean_square}});
  return json;
}

// The value as a message shows it.
std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return value.is_string() ? JsonQuoted(value.get<std::string>().substr(0, 40)) : value.dump();
}

// Reads the members of one object of the file, and keeps the first that is missing or wrong.
class Reader {
 public:
  // `within` names the object: "numbers."; empty for the file's own.
  Reader(const std::string& path, std::string within, const Json& json)
      : path_(path), within_(std::move(within)), json_(json) {}

  const Status& status() const { return status_; }

  int64_t Whole(const char* key, int64_t least) {
    const Json* const value = Find(key);
    if (value == nullptr) return least;
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX);
    if (fits && value->get<int64_t>() >= least) return value->get<int64_t>();
    Refuse(key, *value, Concat("a whole number of at least ", least));
    return least;
  }
  // JSON has no infinity: it is written as null.
  double Number(const char* key) {
    const Json* const value = Find(key);
    if (value != nullptr && value->is_null()) return std::numeric_limits<double>::infinity();
    if (value != nullptr && value->is_number()) return value->get<double>();
    if (value != nullptr) Refuse(key, *value, "a number");
    return 0;
  }
  std::string Text(const char* key) {
    const Json* const value = Find(key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    if (value != nullptr) Refuse(key, *value, "a text");
    return "";
  }
  // The number of the choice.
  template <size_t kCount>
  size_t Choice(const char* key, const std::string_view (&choices)[kCount]) {
    const std::string text = Text(key);
    std::string all;
    for (size_t i = 0; i < kCount; ++i) {
      if (text == choices[i]) return i;
      all += Concat(i == 0 ? "" : ", ", choices[i]);
    }
    if (status_.ok()) Refuse(key, json_.at(key), "one of " + all);
    return 0;
  }
  NumbersSummary Summary(const char* key) {
    const Json* const value = Find(key);
    return value == nullptr ? NumbersSummary() : SummaryOf(Concat(within_, key), *value);
  }
  std::vector<NumbersSummary> Summaries(const char* key) {
    std::vector<NumbersSummary> summaries;
    const Json* const value = Find(key);
    if (value != nullptr && !value->is_array()) Refuse(key, *value, "an array");
    if (!status_.ok()) return summaries;
    for (size_t i = 0; i < value->size(); ++i) {
      summaries.push_back(SummaryOf(Concat(within_, key, "[", i, "]"), (*value)[i]));
    }
    return summaries;
  }

 private:
  // nullptr: it is missing, or an earlier one was wrong.
  const Json* Find(const char* key) {
    if (!status_.ok()) return nullptr;
    const auto found = json_.find(key);
    if (found != json_.end()) return &*found;
    status_ = InvalidArgument(path_, ": '", within_, key, "' is missing");
    return nullptr;
  }
  void Refuse(const std::string& key, const Json& value, const std::string& expected) {
    status_ = InvalidArgument(path_, ": '", within_, key, "' is ", Shown(value), "; it must be ",
                              expected);
  }
  NumbersSummary SummaryOf(const std::string& name, const Json& json) {
    if (!json.is_object()) Refuse(name, json, "an object");
    if (!status_.ok()) return {};
    Reader reader(path_, name + ".", json);
    const NumbersSummary summary = reader.OwnSummary();
    status_.Update(reader.status());
    return summary;
  }
  NumbersSummary OwnSummary() {
    NumbersSummary s;
    const Json* const shape = Find("shape");
    const auto is_size = [](const Json& size) {
      return size.is_number_integer() && size.get<int64_t>() >= 0;
    };
    if (shape != nullptr) {
      if (!shape->is_array() || shape->size() > static_cast<size_t>(kMaxDims) ||
          !std::all_of(shape->begin(), shape->end(), is_size)) {
        Refuse("shape", *shape, "the sizes of a tensor");
        return s;
      }
      for (const Json& size : *shape) s.shape.push_back(size.get<int64_t>());
    }
    const std::string dtype = Text("dtype");
    const auto parsed = ParseDType(dtype);
    if (status_.ok() && !parsed) Refuse("dtype", json_.at("dtype"), "a dtype");
    s.dtype = parsed.value_or(DType::kFloat32);
    s.not_finite = Whole("not_finite", 0);
    if (!s.finite()) {
      s.first = Whole("first", 0);
      s.value = std::strtod(Text("value").c_str(), nullptr);
    }
    s.greatest = Number("greatest");
    s.root_mean_square = Number("root_mean_square");
    return s;
  }

  const std::string& path_;
  const std::string within_;
  const Json& json_;
  Status status_;
};

Json ToJson(const BadNumber& bad) {
  Json json = {{"micro_batch", bad.place.micro_batch},
               {"pass", kPasses[bad.place.backward ? 1 : 0]},
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

BadNumber BadNumberOf(Reader* reader) {
  BadNumber bad;
  bad.kind = static_cast<BadNumber::Kind>(reader->Choice("what", kKinds));
  bad.place = {.micro_batch = reader->Whole("micro_batch", 0),
               .backward = reader->Choice("pass", kPasses) == 1,
               .chunk = reader->Whole("chunk", 0),
               .operation = reader->Whole("operation_number", 0)};
  bad.operation = reader->Text("operation");
  bad.module = reader->Text("module");
  bad.index = reader->Whole("index", 0);
  bad.numbers = reader->Summary("numbers");
  bad.operands = reader->Summaries("operands");
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

// What a rank has found, and which ranks share out experts with it.
struct Found {
  BadStep step;
  int64_t ep_group = 0;
};

// Whether the number came from another rank's experts, or with a gradient from their tokens' rank.
bool WasSent(const BadNumber& bad) {
  return bad.operation == "exchange_rows" && bad.kind != BadNumber::Kind::kSum &&
         std::all_of(bad.operands.begin(), bad.operands.end(),
                     [](const NumbersSummary& operand) { return operand.finite(); });
}

// Ranks of a group run the same pass of their own micro-batches at the same time.
bool SamePass(const PassPlace& a, const PassPlace& b, int64_t micro_batches) {
  return a.micro_batch % micro_batches == b.micro_batch % micro_batches &&
         a.backward == b.backward && a.chunk == b.chunk;
}

// The operation that gave what `found` was sent; `found` itself where no rank has it.
BadStep SenderOf(const Found& found, const std::vector<Found>& all, int64_t micro_batches) {
  const BadStep* sender = nullptr;
  for (const auto& [step, ep_group] : all) {
    if (ep_group != found.ep_group || WasSent(step.number) ||
        !SamePass(step.number.place, found.step.number.place, micro_batches)) {
      continue;
    }
    if (!sender || step.number.place.operation < sender->number.place.operation) sender = &step;
  }
  if (!sender) return found.step;
  BadStep result = *sender;
  result.number.place.micro_batch = found.step.number.place.micro_batch;
  return result;
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

std::optional<BadStep> FirstOfRanks(const dist::Mesh& mesh, const std::optional<BadNumber>& mine,
                                    int64_t micro_batches) {
  std::string text;
  if (mine) {
    Json json = ToJson(*mine);
    json["ep_group"] = mesh.pp()->rank() * mesh.edp()->size() + mesh.edp()->rank();
    text = json.dump();
  }
  std::vector<Found> all;
  int64_t rank = 0;
  for (const std::string& of_rank : dist::GatherStrings(*mesh.world(), text)) {
    const int64_t of = rank++;
    if (of_rank.empty()) continue;
    const Json json = Json::parse(of_rank);
    const std::string from = Concat("rank ", of);
    Reader reader(from, "", json);
    all.push_back({.step = {.rank = of, .number = BadNumberOf(&reader)},
                   .ep_group = reader.Whole("ep_group", 0)});
    TESSERA_CHECK(reader.status().ok(), "bad step", Message(reader.status()));
  }
  const auto first = std::min_element(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return a.step.number.place < b.step.number.place;
  });
  if (first == all.end()) return std::nullopt;
  return WasSent(first->step.number) ? SenderOf(*first, all, micro_batches) : first->step;
}

StatusOr<WrittenBadStep> ReadBadStep(const std::string& path) {
  if (IsDirectory(path)) {
    return InvalidArgument(path, ": is a directory; name the bad_step.json in it");
  }
  TESSERA_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  if (!json.is_object()) return InvalidArgument(path, ": is ", Shown(json), ", not an object");
  Reader reader(path, "", json);
  WrittenBadStep written;
  written.step = reader.Whole("step", 1);
  written.data_ranks = reader.Whole("data_ranks", 1);
  written.bad.rank = reader.Whole("rank", 0);
  written.bad.number = BadNumberOf(&reader);
  TESSERA_RETURN_IF_ERROR(reader.status());
  return written;
}

}  // namespace tessera::train
