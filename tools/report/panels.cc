// SPDX-License-Identifier: Apache-2.0
#include "tools/report/panels.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "train/engine/phase_clock.h"

namespace tessera::report {
namespace {

constexpr const char kStepTime[] = "time of a step";

bool IsPhase(const std::string& name) {
  return std::find(train::kPhaseKeys.begin(), train::kPhaseKeys.end(), name) !=
         train::kPhaseKeys.end();
}

// The sum of a row's phases.
Curve StepTimes(const RunRecord& run) {
  std::map<int64_t, double> sums;
  for (const char* phase : train::kPhaseKeys) {
    const auto found = run.curves.find(phase);
    if (found == run.curves.end()) continue;
    for (const Point& point : found->second) sums[point.step] += point.value;
  }
  Curve times;
  for (const auto& [step, sum] : sums) times.push_back({step, sum});
  return times;
}

void AddPanel(const std::vector<RunRecord>& runs, Panel panel, std::vector<Panel>* panels) {
  for (size_t i = 0; i < runs.size(); ++i) {
    Curve curve;
    if (panel.name == kStepTime) {
      curve = StepTimes(runs[i]);
    } else if (const auto found = runs[i].curves.find(panel.name); found != runs[i].curves.end()) {
      curve = found->second;
    }
    if (!curve.empty()) panel.series.push_back({i, std::move(curve)});
  }
  panel.title = TitleOf(panel.name);
  if (!panel.series.empty()) panels->push_back(std::move(panel));
}

// "tokens_per_second" gives "Tokens per second".
std::string Words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  if (!name.empty()) name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return name;
}

}  // namespace

std::vector<Panel> ChoosePanels(const std::vector<RunRecord>& runs) {
  std::set<std::string> metrics, others;
  for (const RunRecord& run : runs) {
    for (const auto& [name, curve] : run.curves) {
      (name.rfind("val_", 0) == 0 ? metrics : others).insert(name);
    }
  }
  std::vector<Panel> panels;
  const auto add = [&](Panel panel) {
    others.erase(panel.name);
    AddPanel(runs, std::move(panel), &panels);
  };
  add({.name = "loss", .lowest_is_best = true});
  add({.name = "val_loss", .lowest_is_best = true});
  metrics.erase("val_loss");
  for (const std::string& name : metrics) add({.name = name});
  add({.name = "lr", .from_zero = true, .smooths = false});
  add({.name = "grad_norm", .from_zero = true});
  add({.name = "tokens_per_second", .from_zero = true});
  add({.name = kStepTime, .unit = Unit::kMilliseconds, .from_zero = true});
  add({.name = "peak_bytes", .unit = Unit::kBytes, .from_zero = true, .smooths = false});
  for (const std::string& name : std::set<std::string>(others)) {
    if (!IsPhase(name)) add({.name = name});
  }
  return panels;
}

std::string TitleOf(const std::string& name) {
  static const auto* const titles = new std::map<std::string, std::string>{
      {"loss", "Training loss"},
      {"lr", "Learning rate"},
      {"grad_norm", "Gradient norm"},
      {"peak_bytes", "Peak memory"},
  };
  if (const auto found = titles->find(name); found != titles->end()) return found->second;
  return name.rfind("val_", 0) == 0 ? "Validation " + name.substr(4) : Words(name);
}

std::vector<std::string> PhasesOf(const std::vector<RunRecord>& runs) {
  std::vector<std::string> phases;
  for (const char* phase : train::kPhaseKeys) {
    const bool takes_time = std::any_of(runs.begin(), runs.end(), [&](const RunRecord& run) {
      const auto found = run.curves.find(phase);
      return found != run.curves.end() &&
             std::any_of(found->second.begin(), found->second.end(),
                         [](const Point& point) { return point.value > 0; });
    });
    if (takes_time) phases.push_back(phase);
  }
  return phases;
}

std::string PhaseTitle(const std::string& phase) {
  return Words(phase.substr(0, phase.rfind("_ms")));
}

}  // namespace tessera::report
