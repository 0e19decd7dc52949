// SPDX-License-Identifier: Apache-2.0
#include "tools/report/phase_chart.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tools/report/chart_parts.h"
#include "tools/report/panels.h"

namespace tessera::report {
namespace {

constexpr double kWidth = 380, kLeft = 26, kRight = 362, kTop = 14;
constexpr double kBarHeight = 26, kBarGap = 14;

// Of a run, in the order of PhasesOf; 0 where it has none.
using Means = std::vector<double>;

double MeanOf(const RunRecord& run, const std::string& phase) {
  const auto found = run.curves.find(phase);
  if (found == run.curves.end()) return 0;
  double sum = 0;
  int64_t count = 0;
  for (const Point& point : found->second) {
    if (!(point.value >= 0)) continue;
    sum += point.value;
    ++count;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

double Sum(const Means& means) {
  double sum = 0;
  for (const double mean : means) sum += mean;
  return sum;
}

// "k3": phases have their colours in every report.
std::string ColourOfPhase(const std::string& phase) {
  return "k-" + phase.substr(0, phase.rfind("_ms"));
}

void DrawBars(const std::vector<std::string>& phases, const std::vector<size_t>& shown,
              const std::vector<Means>& means, const Axis& axis, Markup* out) {
  double y = kTop;
  for (const size_t run : shown) {
    double x = kLeft;
    if (means.size() > 1) {
      out->Leaf("text",
                {{"class", "letter " + ColourOf(run)},
                 {"x", kLeft - 10},
                 {"y", y + kBarHeight / 2 + 4},
                 {"text-anchor", "end"},
                 {"data-run", run}},
                LetterOf(run));
    }
    for (size_t p = 0; p < phases.size(); ++p) {
      const double width = (kRight - kLeft) * (axis.At(means[run][p]) - axis.At(0));
      if (width < 0.05) continue;
      out->Leaf("rect", {{"class", ColourOfPhase(phases[p])},
                         {"x", x},
                         {"y", y},
                         {"width", std::max(0.5, width - 1)},
                         {"height", kBarHeight},
                         {"data-run", run}});
      x += width;
    }
    y += kBarHeight + kBarGap;
  }
  for (const Tick& tick : axis.ticks) {
    const double x = kLeft + (kRight - kLeft) * axis.At(tick.value);
    out->Leaf("text", {{"x", x}, {"y", y + 6}, {"text-anchor", "middle"}}, tick.label);
  }
}

// The legend and the numbers in one.
void WriteMeans(const std::vector<std::string>& phases, const std::vector<size_t>& shown,
                const std::vector<Means>& means, const std::vector<RunRecord>& runs, Markup* out) {
  OpenScroll("Means of the phases", out);
  out->Open("table", {{"class", "figures"}}).Open("thead").Open("tr");
  out->Leaf("th", {{"scope", "col"}}, "Phase");
  for (const size_t run : shown) {
    out->Open("th", {{"scope", "col"}, {"data-run", run}});
    if (runs.size() > 1) {
      out->Leaf("span", {{"class", "key " + ColourOf(run)}, {"title", runs[run].name}},
                LetterOf(run));
    } else {
      out->Text("Mean");
    }
    out->Close();
  }
  out->Close().Close().Open("tbody");
  for (size_t p = 0; p < phases.size(); ++p) {
    out->Open("tr").Open("th", {{"scope", "row"}});
    out->Leaf("span", {{"class", "swatch " + ColourOfPhase(phases[p])}})
        .Text(PhaseTitle(phases[p]));
    out->Close();
    for (const size_t run : shown) {
      out->Open("td", {{"data-run", run}}).Text(MillisecondsText(means[run][p]));
      const double sum = Sum(means[run]);
      if (sum > 0) out->Leaf("span", {{"class", "share"}}, PercentText(means[run][p] / sum));
      out->Close();
    }
    out->Close();
  }
  out->Close().Close().Close();
}

}  // namespace

Markup PhaseChart(const std::vector<RunRecord>& runs) {
  const std::vector<std::string> phases = PhasesOf(runs);
  std::vector<Means> means;
  std::vector<size_t> shown;  // runs that have phases
  double longest = 0;
  std::string description;
  for (size_t run = 0; run < runs.size(); ++run) {
    Means& mine = means.emplace_back();
    for (const std::string& phase : phases) mine.push_back(MeanOf(runs[run], phase));
    const double sum = Sum(mine);
    if (sum == 0) continue;
    shown.push_back(run);
    longest = std::max(longest, sum);
    description += runs[run].name + ": " + MillisecondsText(sum) + " a step. ";
  }
  const Axis axis = LinearAxis(
      0, longest, {.unit = Unit::kMilliseconds, .most = 4, .from_zero = true, .margin = 0});
  Markup out;
  out.Open("figure",
           {{"class", "chart phases"}, {"id", "phases"}, {"aria-label", "Phases of a step"}});
  out.Open("figcaption").Leaf("h3", {}, "Phases of a step");
  out.Leaf("span", {{"class", "at"}}, "mean over the rows").Close();
  OpenPicture({.id = "phases",
               .title = "Mean time of each phase of a step",
               .description = description + "The table holds each phase.",
               .width = kWidth,
               .height = kTop + static_cast<double>(shown.size()) * (kBarHeight + kBarGap) + 14},
              &out);
  DrawBars(phases, shown, means, axis, &out);
  out.Close();
  WriteMeans(phases, shown, means, runs, &out);
  out.Close();
  return out;
}

}  // namespace tessera::report
