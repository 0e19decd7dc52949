// SPDX-License-Identifier: Apache-2.0
#include "tools/report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_format.h"
#include "tools/report/chart_parts.h"
#include "tools/report/decimation.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

// The picture and, within it, the plot.
constexpr double kWidth = 380, kHeight = 210;
constexpr double kLeft = 54, kRight = 362, kTop = 14, kBottom = 184;
constexpr int kMostPoints = 400;  // of a curve: the plot is not much wider
constexpr int kMostTableRows = 50;
constexpr size_t kFewPoints = 24;  // which are marked one by one
constexpr double kLetterHeight = 13;

double X(const Axis& steps, int64_t step) {
  return kLeft + (kRight - kLeft) * steps.At(static_cast<double>(step));
}
double Y(const Axis& values, double value) { return kBottom - (kBottom - kTop) * values.At(value); }

// One decimal: a tenth of a pixel.
std::string Coordinates(double x, double y) { return absl::StrFormat("%.1f %.1f", x, y); }

// A point between gaps is a line of no length, which round ends make a dot.
std::string PathOf(const Curve& curve, const Axis& steps, const Axis& values) {
  std::string path;
  bool draws = false;
  for (size_t i = 0; i < curve.size(); ++i) {
    const bool finite = !std::isnan(curve[i].value);
    if (finite) {
      path += (draws ? "L" : "M") + Coordinates(X(steps, curve[i].step), Y(values, curve[i].value));
      const bool alone = !draws && (i + 1 == curve.size() || std::isnan(curve[i + 1].value));
      if (alone) path += "h0";
    }
    draws = finite;
  }
  return path;
}

std::string Crosses(const Curve& curve, const Axis& steps) {
  std::string path;
  for (const Point& point : curve) {
    if (!std::isnan(point.value)) continue;
    path += "M" + Coordinates(X(steps, point.step) - 3, kTop - 9) + "l6 6m0 -6l-6 6";
  }
  return path;
}

std::string Dots(const Curve& curve, const Axis& steps, const Axis& values) {
  std::string path;
  for (const Point& point : curve) {
    if (std::isnan(point.value)) continue;
    path += "M" + Coordinates(X(steps, point.step), Y(values, point.value)) + "h0";
  }
  return path;
}

struct Extent {
  double least = std::numeric_limits<double>::infinity();
  double greatest = -std::numeric_limits<double>::infinity();
  bool empty() const { return least > greatest; }
};

Extent ExtentOf(const Panel& panel) {
  Extent extent;
  for (const Series& series : panel.series) {
    for (const Point& point : series.curve) {
      if (std::isnan(point.value)) continue;
      extent.least = std::min(extent.least, point.value);
      extent.greatest = std::max(extent.greatest, point.value);
    }
  }
  return extent;
}

int64_t NotFinite(const Curve& curve) {
  return std::count_if(curve.begin(), curve.end(),
                       [](const Point& point) { return std::isnan(point.value); });
}

std::string StepText(int64_t step) { return NumberText(static_cast<double>(step), Unit::kSteps); }

// "3 rows are not finite"; empty where all are.
std::string NotFiniteText(const Curve& curve) {
  const int64_t count = NotFinite(curve);
  if (count == 0) return "";
  return StepText(count) + (count == 1 ? " row is not finite" : " rows are not finite");
}

// "lowest 2.61 at step 380; 3 rows are not finite", or what of that there is to say.
std::string Remarks(const Panel& panel, const Curve& curve) {
  std::string text;
  const Point* best = panel.lowest_is_best ? LowestOf(curve) : nullptr;
  if (best != nullptr) {
    text = "lowest " + NumberText(best->value, panel.unit) + " at step " + StepText(best->step);
  }
  const std::string broken = NotFiniteText(curve);
  if (!text.empty() && !broken.empty()) text += "; ";
  return text + broken;
}

std::string DescriptionOf(const Panel& panel, const std::vector<RunRecord>& runs) {
  std::string text;
  for (const Series& series : panel.series) {
    const Curve& curve = series.curve;
    if (runs.size() > 1) text += LetterOf(series.run) + ", " + runs[series.run].name + ": ";
    text +=
        NumberText(curve.front().value, panel.unit) + " at step " + StepText(curve.front().step);
    if (curve.size() > 1) {
      text += ", " + NumberText(curve.back().value, panel.unit) + " at step " +
              StepText(curve.back().step);
    }
    const std::string remarks = Remarks(panel, curve);
    text += remarks.empty() ? ". " : "; " + remarks + ". ";
  }
  if (!text.empty()) text.pop_back();
  return text;
}

// --- The picture ---------------------------------------------------------------------------------

void DrawValueAxis(const Axis& axis, Markup* out) {
  out->Open("g", {{"class", axis.logarithmic ? "axis logarithmic" : "axis linear"}});
  for (const Tick& tick : axis.ticks) {
    const double y = Y(axis, tick.value);
    out->Leaf("path", {{"d", "M" + Coordinates(kLeft, y) + "H" + Markup::Value(kRight).text()}});
    out->Leaf("text", {{"x", kLeft - 7}, {"y", y + 3.8}, {"text-anchor", "end"}}, tick.label);
  }
  out->Close();
}

void DrawStepAxis(const Axis& axis, Markup* out) {
  out->Open("g", {{"class", "axis steps"}});
  out->Leaf("path",
            {{"class", "base"},
             {"d", "M" + Coordinates(kLeft, kBottom) + "H" + Markup::Value(kRight).text()}});
  for (const Tick& tick : axis.ticks) {
    const double x = kLeft + (kRight - kLeft) * axis.At(tick.value);
    out->Leaf("path", {{"class", "base"}, {"d", "M" + Coordinates(x, kBottom) + "v4"}});
    out->Leaf("text", {{"x", x}, {"y", kBottom + 17}, {"text-anchor", "middle"}}, tick.label);
  }
  out->Close();
}

// Where letters stand: at the ends of the curves, moved apart where curves end close to each other.
struct Letter {
  double x = 0;
  double y = 0;
};
std::map<size_t, Letter> LettersOf(const Panel& panel, const Axis& steps, const Axis& values) {
  std::vector<std::pair<Letter, size_t>> ends;
  for (const Series& series : panel.series) {
    for (auto point = series.curve.rbegin(); point != series.curve.rend(); ++point) {
      if (std::isnan(point->value)) continue;
      ends.push_back({{X(steps, point->step) + 6, Y(values, point->value)}, series.run});
      break;
    }
  }
  std::sort(ends.begin(), ends.end(),
            [](const auto& a, const auto& b) { return a.first.y < b.first.y; });
  const auto touch = [](const Letter& a, const Letter& b) {
    return std::abs(a.x - b.x) < kLetterHeight && std::abs(a.y - b.y) < kLetterHeight;
  };
  // Downwards, and from the bottom up again.
  for (size_t i = 0; i < ends.size(); ++i) {
    for (size_t above = 0; above < i; ++above) {
      if (touch(ends[i].first, ends[above].first)) {
        ends[i].first.y = ends[above].first.y + kLetterHeight;
      }
    }
  }
  for (size_t i = ends.size(); i-- > 0;) {
    ends[i].first.y = std::min(ends[i].first.y, kBottom);
    for (size_t below = i + 1; below < ends.size(); ++below) {
      if (touch(ends[i].first, ends[below].first)) {
        ends[i].first.y = ends[below].first.y - kLetterHeight;
      }
    }
  }
  std::map<size_t, Letter> letters;
  for (const auto& [letter, run] : ends) letters[run] = letter;
  return letters;
}

void DrawCurves(const Panel& panel, const std::vector<RunRecord>& runs, const Axis& steps,
                const Axis& values, Markup* out) {
  const std::map<size_t, Letter> letters = LettersOf(panel, steps, values);
  for (const Series& series : panel.series) {
    const Curve drawn = Decimate(series.curve, kMostPoints);
    out->Open("g", {{"class", "curve " + ColourOf(series.run)}, {"data-run", series.run}});
    out->Leaf("path", {{"class", "line"}, {"d", PathOf(drawn, steps, values)}});
    if (drawn.size() <= kFewPoints) {
      out->Leaf("path", {{"class", "dots"}, {"d", Dots(drawn, steps, values)}});
    }
    if (NotFinite(drawn) > 0) {
      out->Leaf("path", {{"class", "crosses"}, {"d", Crosses(drawn, steps)}});
    }
    const auto letter = letters.find(series.run);
    if (runs.size() > 1 && letter != letters.end()) {
      out->Leaf("text",
                {{"class", "letter"}, {"x", letter->second.x}, {"y", letter->second.y + 3.8}},
                LetterOf(series.run));
    }
    out->Close();
  }
}

// --- Beside it -----------------------------------------------------------------------------------

void WriteReadings(const Panel& panel, const std::vector<RunRecord>& runs, Markup* out) {
  out->Open("ul", {{"class", runs.size() > 1 ? "readings" : "readings single"}});
  for (const Series& series : panel.series) {
    const Point& last = series.curve.back();
    out->Open("li", {{"class", ColourOf(series.run)}, {"data-run", series.run}});
    if (runs.size() > 1) {
      out->Leaf("span", {{"class", "key"}}, LetterOf(series.run));
      out->Leaf("span", {{"class", "name"}}, runs[series.run].name);
    }
    out->Leaf("span", {{"class", "value"}}, NumberText(last.value, panel.unit));
    // The overview compares the lowest of several runs.
    const std::string remark =
        runs.size() > 1 ? NotFiniteText(series.curve) : Remarks(panel, series.curve);
    if (!remark.empty()) out->Leaf("span", {{"class", "remark"}}, remark);
    out->Close();
  }
  out->Close();
}

void WriteTable(const Panel& panel, const std::vector<RunRecord>& runs, const std::string& id,
                Markup* out) {
  std::map<int64_t, std::map<size_t, double>> rows;
  for (const Series& series : panel.series) {
    for (const Point& point : series.curve) rows[point.step][series.run] = point.value;
  }
  OpenTable(id, "Table",
            panel.title + (rows.size() > kMostTableRows ? ", every so many steps" : ""), out);
  out->Open("thead").Open("tr").Leaf("th", {{"scope", "col"}}, "Step");
  for (const Series& series : panel.series) {
    out->Leaf("th", {{"scope", "col"}}, runs[series.run].name);
  }
  out->Close().Close().Open("tbody");
  // As evenly spread as rows are, the last one among them.
  const size_t stride = (rows.size() + kMostTableRows - 1) / kMostTableRows;
  size_t left = rows.size();
  for (const auto& [step, values] : rows) {
    if (--left % stride != 0) continue;
    out->Open("tr").Leaf("th", {{"scope", "row"}}, StepText(step));
    for (const Series& series : panel.series) {
      const auto found = values.find(series.run);
      out->Leaf("td", {}, found == values.end() ? "" : NumberText(found->second, panel.unit));
    }
    out->Close();
  }
  out->Close();
  CloseTable(out);
}

// Five digits are more than a screen shows.
double Rounded(double value) { return std::atof(absl::StrFormat("%.5g", value).c_str()); }

ordered_json DataOf(const Panel& panel, const Axis& steps, const Axis& linear,
                    const std::optional<Axis>& logarithmic) {
  ordered_json data;
  data["plot"] = {kLeft, kTop, kRight, kBottom};
  data["steps"] = {steps.low, steps.high};
  data["smooths"] = panel.smooths;
  data["linear"] = {linear.low, linear.high};
  if (logarithmic) data["logarithmic"] = {logarithmic->low, logarithmic->high};
  for (const Series& series : panel.series) {
    ordered_json x = ordered_json::array(), y = x, text = x;
    for (const Point& point : Decimate(series.curve, kMostPoints)) {
      x.push_back(point.step);
      y.push_back(Rounded(point.value));
      text.push_back(NumberText(point.value, panel.unit));
    }
    data["curves"].push_back({{"run", series.run}, {"x", x}, {"y", y}, {"text", text}});
  }
  return data;
}

}  // namespace

Axis StepAxis(const std::vector<Panel>& panels) {
  int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
  for (const Panel& panel : panels) {
    for (const Series& series : panel.series) {
      first = std::min(first, series.curve.front().step);
      last = std::max(last, series.curve.back().step);
    }
  }
  // A run that went on from a late step begins there, any other at none.
  const bool late = static_cast<double>(first) > 0.3 * static_cast<double>(last);
  return LinearAxis(late ? static_cast<double>(first) : 0, static_cast<double>(last),
                    {.unit = Unit::kSteps, .most = 6, .from_zero = !late, .margin = 0.01});
}

Markup LineChart(const Panel& panel, const std::vector<RunRecord>& runs, const Axis& steps) {
  Extent extent = ExtentOf(panel);
  if (extent.empty()) extent = {0, 1};
  const AxisOptions options = {.unit = panel.unit, .from_zero = panel.from_zero};
  const Axis linear = LinearAxis(extent.least, extent.greatest, options);
  const std::optional<Axis> logarithmic = LogarithmicAxis(extent.least, extent.greatest, options);
  const std::string id = "chart-" + IdOf(panel.name);
  Markup out;
  out.Open("figure", {{"class", "chart"}, {"id", id}, {"aria-label", panel.title}});
  out.Open("figcaption").Leaf("h3", {}, panel.title).Leaf("span", {{"class", "at"}}).Close();
  out.Open("div", {{"class", "plot"}});
  OpenPicture({.id = id,
               .title = panel.title + " over the steps",
               .description = DescriptionOf(panel, runs),
               .width = kWidth,
               .height = kHeight},
              &out);
  DrawValueAxis(linear, &out);
  if (logarithmic) DrawValueAxis(*logarithmic, &out);
  DrawStepAxis(steps, &out);
  DrawCurves(panel, runs, steps, linear, &out);
  out.Leaf("path",
           {{"class", "cursor"},
            {"d", "M0 " + Markup::Value(kTop).text() + "V" + Markup::Value(kBottom).text()}});
  out.Close().Close();
  WriteReadings(panel, runs, &out);
  WriteTable(panel, runs, id, &out);
  out.Data({{"type", "application/json"}}, DataOf(panel, steps, linear, logarithmic));
  out.Close();
  return out;
}

}  // namespace tessera::report
