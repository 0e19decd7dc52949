// SPDX-License-Identifier: Apache-2.0
#include "tools/report/overview.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "tools/report/chart_parts.h"
#include "tools/report/numbers.h"
#include "tools/report/panels.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostEvents = 200;
constexpr size_t kMostSampleSets = 20, kMostSampleLines = 50;

struct Fact {
  std::string label;
  std::string value;
  std::string detail = {};
};

std::string Steps(int64_t step) { return NumberText(static_cast<double>(step), Unit::kSteps); }

const char* StateText(RunState state) {
  switch (state) {
    case RunState::kFinished:
      return "finished";
    case RunState::kInProgress:
      return "in progress";
    case RunState::kStopped:
      return "stopped";
  }
  return "";
}
const char* StateClass(RunState state) {
  switch (state) {
    case RunState::kFinished:
      return "state finished";
    case RunState::kInProgress:
      return "state running";
    case RunState::kStopped:
      return "state stopped";
  }
  return "";
}

std::vector<double> FiniteValues(const Curve& curve) {
  std::vector<double> values;
  for (const Point& point : curve) {
    if (!std::isnan(point.value)) values.push_back(point.value);
  }
  return values;
}

void AddLoss(const RunRecord& run, const char* name, std::vector<Fact>* facts) {
  const auto found = run.curves.find(name);
  if (found == run.curves.end()) return;
  const Point* const best = LowestOf(found->second);
  Fact fact = {TitleOf(name), NumberText(found->second.back().value, Unit::kNone)};
  if (best != nullptr && best != &found->second.back()) {
    fact.detail =
        "lowest " + NumberText(best->value, Unit::kNone) + " at step " + Steps(best->step);
  }
  facts->push_back(std::move(fact));
}

std::string ConfigText(const RunRecord& run, const char* key) {
  const auto found = run.config.find(key);
  return found != run.config.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<Fact> FactsOf(const RunRecord& run) {
  std::vector<Fact> facts;
  Fact steps = {"Steps", Steps(run.step)};
  if (run.total_steps) steps.detail = "of " + Steps(*run.total_steps);
  facts.push_back(std::move(steps));
  AddLoss(run, "loss", &facts);
  AddLoss(run, "val_loss", &facts);
  for (const auto& [name, curve] : run.curves) {
    if (name.rfind("val_", 0) != 0 || name == "val_loss") continue;
    facts.push_back({TitleOf(name), NumberText(curve.back().value, Unit::kNone)});
  }
  if (const auto found = run.curves.find("tokens_per_second"); found != run.curves.end()) {
    std::vector<double> rates = FiniteValues(found->second);
    if (!rates.empty()) {
      const auto middle = rates.begin() + std::ssize(rates) / 2;
      std::nth_element(rates.begin(), middle, rates.end());
      facts.push_back({TitleOf(found->first), NumberText(*middle, Unit::kNone), "median"});
    }
  }
  if (const auto found = run.curves.find("peak_bytes"); found != run.curves.end()) {
    const std::vector<double> sizes = FiniteValues(found->second);
    if (!sizes.empty()) {
      facts.push_back(
          {"Peak memory", NumberText(*std::max_element(sizes.begin(), sizes.end()), Unit::kBytes)});
    }
  }
  const std::string model = ConfigText(run, "model"), task = ConfigText(run, "task");
  if (!model.empty()) {
    Fact fact = {"Model", model};
    if (run.parameters) {
      fact.detail = NumberText(static_cast<double>(*run.parameters), Unit::kCount) + " parameters";
    }
    facts.push_back(std::move(fact));
  }
  if (!task.empty()) facts.push_back({"Task", task});
  return facts;
}

void WriteState(const RunRecord& run, Markup* out) {
  out->Leaf("span", {{"class", StateClass(run.state)}}, StateText(run.state));
}

void WriteFact(const Fact& fact, Markup* out) {
  out->Leaf("span", {{"class", "figure"}}, fact.value);
  if (!fact.detail.empty()) out->Leaf("span", {{"class", "detail"}}, fact.detail);
}

void WriteTiles(const RunRecord& run, Markup* out) {
  out->Open("p", {{"class", "path"}});
  WriteState(run, out);
  out->Leaf("span", {}, run.path).Close();
  out->Open("dl", {{"class", "tiles"}});
  for (const Fact& fact : FactsOf(run)) {
    out->Open("div").Leaf("dt", {}, fact.label).Open("dd");
    WriteFact(fact, out);
    out->Close().Close();
  }
  out->Close();
}

// Roles are said again: on narrow screens rows become blocks, which would lose them.
void WriteRunRow(const RunRecord& run, size_t index, const std::vector<std::string>& labels,
                 Markup* out) {
  out->Open("tr", {{"role", "row"}, {"class", ColourOf(index)}});
  out->Open("th", {{"scope", "row"}, {"role", "rowheader"}});
  out->Open("div", {{"class", "run"}})
      .Open("label")
      .Leaf("input", {{"type", "checkbox"},
                      {"checked", ""},
                      {"hidden", ""},
                      {"id", "show-" + std::to_string(index)},
                      {"data-show", index}});
  out->Leaf("span", {{"class", "key"}}, LetterOf(index));
  out->Leaf("span", {{"class", "name"}}, run.name).Close();
  WriteState(run, out);
  out->Close().Close();
  const std::vector<Fact> facts = FactsOf(run);
  for (const std::string& label : labels) {
    out->Open("td", {{"role", "cell"}, {"data-label", label}});
    const auto fact =
        std::find_if(facts.begin(), facts.end(), [&](const Fact& f) { return f.label == label; });
    if (fact != facts.end()) WriteFact(*fact, out);
    out->Close();
  }
  out->Close();
}

void WriteRunTable(const std::vector<RunRecord>& runs, Markup* out) {
  std::vector<std::string> labels;
  for (const RunRecord& run : runs) {
    for (const Fact& fact : FactsOf(run)) {
      if (std::find(labels.begin(), labels.end(), fact.label) == labels.end()) {
        labels.push_back(fact.label);
      }
    }
  }
  OpenScroll("The runs", out);
  out->Open("table", {{"class", "runs"}, {"role", "table"}});
  out->Open("thead", {{"role", "rowgroup"}}).Open("tr", {{"role", "row"}});
  out->Leaf("th", {{"scope", "col"}, {"role", "columnheader"}}, "Run");
  for (const std::string& label : labels) {
    out->Leaf("th", {{"scope", "col"}, {"role", "columnheader"}}, label);
  }
  out->Close().Close().Open("tbody", {{"role", "rowgroup"}});
  for (size_t i = 0; i < runs.size(); ++i) WriteRunRow(runs[i], i, labels, out);
  out->Close().Close().Close();
}

// A heading of what follows about one of several runs.
void WriteRunHeading(const std::vector<RunRecord>& runs, size_t index, Markup* out) {
  if (runs.size() == 1) return;
  out->Open("h3", {{"class", ColourOf(index)}});
  out->Leaf("span", {{"class", "key"}}, LetterOf(index)).Text(runs[index].name).Close();
}

// --- Configuration -------------------------------------------------------------------------------

std::string ValueText(const ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const ordered_json& item : value) text += (text.empty() ? "" : ", ") + ValueText(item);
    return text;
  }
  // Without the last digits of what was divided.
  if (value.is_number_float()) return absl::StrFormat("%.10g", value.get<double>());
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json ValueOf(const RunRecord& run, const std::string& key) {
  const auto found = run.config.find(key);
  return found == run.config.end() ? ordered_json() : *found;
}

std::vector<std::string> KeysOf(const std::vector<RunRecord>& runs) {
  std::vector<std::string> keys;
  std::set<std::string> known;
  for (const RunRecord& run : runs) {
    for (const auto& [key, value] : run.config.items()) {
      if (known.insert(key).second) keys.push_back(key);
    }
  }
  return keys;
}

void WriteKeys(const std::vector<RunRecord>& runs, const std::vector<std::string>& keys,
               bool differ, Markup* out) {
  OpenScroll(differ ? "Keys that differ" : "Configuration", out);
  out->Open("table", {{"class", "keys"}}).Open("thead").Open("tr");
  out->Leaf("th", {{"scope", "col"}}, "Key");
  for (size_t i = 0; i < (differ ? runs.size() : 1); ++i) {
    out->Open("th", {{"scope", "col"}});
    if (differ) {
      out->Leaf("span", {{"class", "key " + ColourOf(i)}}, LetterOf(i)).Text(runs[i].name);
    } else {
      out->Text("Value");
    }
    out->Close();
  }
  out->Close().Close().Open("tbody");
  for (const std::string& key : keys) {
    out->Open("tr").Open("th", {{"scope", "row"}}).Leaf("code", {}, key).Close();
    for (size_t i = 0; i < (differ ? runs.size() : 1); ++i) {
      out->Open("td").Leaf("code", {}, ValueText(ValueOf(runs[i], key))).Close();
    }
    out->Close();
  }
  out->Close().Close().Close();
}

// --- Samples -------------------------------------------------------------------------------------

void WriteSamples(const Samples& samples, const char* heading, Markup* out) {
  out->Leaf(heading, {{"class", "step"}}, "Step " + Steps(samples.step));
  out->Open("ol", {{"class", "samples"}});
  const size_t shown = std::min(samples.lines.size(), kMostSampleLines);
  for (size_t i = 0; i < shown; ++i) {
    out->Open("li").Leaf("div", {{"dir", "auto"}}, samples.lines[i]).Close();
  }
  out->Close();
  if (shown < samples.lines.size()) {
    out->Leaf("p", {{"class", "remark"}},
              Steps(std::ssize(samples.lines) - static_cast<int64_t>(shown)) +
                  " more lines are in samples.jsonl");
  }
}

// --- Epochs --------------------------------------------------------------------------------------

Unit UnitOf(const std::string& name) {
  if (name == "epoch") return Unit::kSteps;
  return name == "peak_bytes" ? Unit::kBytes : Unit::kNone;
}

void WriteEpochs(const RunRecord& run, Markup* out) {
  std::vector<std::string> columns;
  for (const Epoch& epoch : run.epochs) {
    for (const auto& [name, value] : epoch.values) {
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  OpenScroll("Epochs of " + run.name, out);
  out->Open("table", {{"class", "figures"}}).Open("thead").Open("tr");
  out->Leaf("th", {{"scope", "col"}}, TitleOf("step"));
  for (const std::string& name : columns) out->Leaf("th", {{"scope", "col"}}, TitleOf(name));
  out->Close().Close().Open("tbody");
  for (const Epoch& epoch : run.epochs) {
    out->Open("tr").Leaf("th", {{"scope", "row"}}, Steps(epoch.step));
    for (const std::string& name : columns) {
      const auto value = std::find_if(epoch.values.begin(), epoch.values.end(),
                                      [&](const auto& entry) { return entry.first == name; });
      out->Leaf("td", {},
                value == epoch.values.end() ? "" : NumberText(value->second, UnitOf(name)));
    }
    out->Close();
  }
  out->Close().Close().Close();
}

// --- Ranks ---------------------------------------------------------------------------------------

void WriteEvents(const RunRecord& run, Markup* out) {
  OpenScroll("Ranks of " + run.name, out);
  out->Open("table", {{"class", "keys"}}).Open("thead").Open("tr");
  for (const char* title :
       {"Step", "Event", "Hosts and ranks", "Reason", "Steps lost", "Seconds lost"}) {
    out->Leaf("th", {{"scope", "col"}}, title);
  }
  out->Close().Close().Open("tbody");
  const size_t shown = std::min(run.events.size(), kMostEvents);
  for (size_t i = run.events.size() - shown; i < run.events.size(); ++i) {
    const RankEvent& event = run.events[i];
    out->Open("tr").Leaf("th", {{"scope", "row"}}, Steps(event.step));
    for (const std::string& cell : {event.kind, event.where, event.what}) out->Leaf("td", {}, cell);
    out->Leaf("td", {}, event.lost_steps ? Steps(*event.lost_steps) : "");
    out->Leaf("td", {}, event.lost_seconds ? NumberText(*event.lost_seconds, Unit::kNone) : "");
    out->Close();
  }
  out->Close().Close().Close();
  if (shown < run.events.size()) {
    out->Leaf("p", {{"class", "remark"}}, "Earlier ones are in events.jsonl");
  }
}

// "ranks started again 12 times; 31 steps and 14.2 s were lost".
std::string LossText(const RunRecord& run) {
  int64_t starts = 0, steps = 0;
  double seconds = 0;
  for (const RankEvent& event : run.events) {
    if (!event.lost_seconds) continue;
    ++starts;
    steps += event.lost_steps.value_or(0);
    seconds += *event.lost_seconds;
  }
  return Concat("ranks started again ", starts == 1 ? "once" : Concat(starts, " times"), "; ",
                steps, " steps and ", NumberText(seconds, Unit::kNone), " s were lost");
}

}  // namespace

Markup RankEvents(const std::vector<RunRecord>& runs) {
  Markup out;
  const bool any = std::any_of(runs.begin(), runs.end(),
                               [](const RunRecord& run) { return !run.events.empty(); });
  if (!any) return out;
  out.Open("section").Leaf("h2", {}, "Ranks that left and joined");
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].events.empty()) continue;
    WriteRunHeading(runs, i, &out);
    out.Leaf("p", {{"class", "remark"}}, LossText(runs[i]));
    WriteEvents(runs[i], &out);
  }
  out.Close();
  return out;
}

Markup Overview(const std::vector<RunRecord>& runs) {
  Markup out;
  out.Open("section", {{"class", "overview"}, {"aria-label", "Overview"}});
  if (runs.size() == 1) {
    WriteTiles(runs[0], &out);
  } else {
    WriteRunTable(runs, &out);
  }
  out.Close();
  return out;
}

Markup Configuration(const std::vector<RunRecord>& runs) {
  std::vector<std::string> differing, equal;
  for (const std::string& key : KeysOf(runs)) {
    const ordered_json first = ValueOf(runs[0], key);
    const bool same = std::all_of(runs.begin(), runs.end(),
                                  [&](const RunRecord& run) { return ValueOf(run, key) == first; });
    if (!same) differing.push_back(key);
    if (same && !first.is_null()) equal.push_back(key);
  }
  Markup out;
  if (differing.empty() && equal.empty()) return out;
  out.Open("section").Leaf("h2", {}, "Configuration");
  if (runs.size() > 1 && !differing.empty()) WriteKeys(runs, differing, /*differ=*/true, &out);
  if (!equal.empty()) {
    out.Open("details", {{"id", "configuration"}});
    out.Leaf("summary", {},
             runs.size() > 1 ? Steps(std::ssize(equal)) + " keys are the same in all runs"
                             : Steps(std::ssize(equal)) + " keys have a value");
    WriteKeys(runs, equal, /*differ=*/false, &out);
    out.Close();
  }
  out.Close();
  return out;
}

Markup SamplesOf(const std::vector<RunRecord>& runs) {
  Markup out;
  const bool any = std::any_of(runs.begin(), runs.end(),
                               [](const RunRecord& run) { return !run.samples.empty(); });
  if (!any) return out;
  out.Open("section").Leaf("h2", {}, "Samples");
  const char* const heading = runs.size() > 1 ? "h4" : "h3";  // below the run's
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::vector<Samples>& sets = runs[i].samples;
    if (sets.empty()) continue;
    WriteRunHeading(runs, i, &out);
    WriteSamples(sets.back(), heading, &out);
    if (sets.size() == 1) continue;
    const size_t shown = std::min(sets.size(), kMostSampleSets);
    out.Open("details", {{"id", "samples-" + std::to_string(i)}});
    out.Leaf("summary", {}, "Earlier samples");
    for (size_t back = 2; back <= shown; ++back)
      WriteSamples(sets[sets.size() - back], heading, &out);
    if (shown < sets.size()) {
      out.Leaf("p", {{"class", "remark"}}, "Still earlier ones are in samples.jsonl");
    }
    out.Close();
  }
  out.Close();
  return out;
}

Markup Epochs(const std::vector<RunRecord>& runs) {
  Markup out;
  const bool any = std::any_of(runs.begin(), runs.end(),
                               [](const RunRecord& run) { return !run.epochs.empty(); });
  if (!any) return out;
  out.Open("section").Leaf("h2", {}, "Epochs");
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].epochs.empty()) continue;
    WriteRunHeading(runs, i, &out);
    WriteEpochs(runs[i], &out);
  }
  out.Close();
  return out;
}

}  // namespace tessera::report
