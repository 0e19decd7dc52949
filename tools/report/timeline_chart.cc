// SPDX-License-Identifier: Apache-2.0
#include "tools/report/timeline_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tools/report/chart_parts.h"
#include "tools/report/numbers.h"

namespace tessera::report {
namespace {

constexpr double kTop = 8, kRowHeight = 30, kRowGap = 8, kRightMargin = 12, kLeft = 58;
constexpr double kWideWidth = 1240, kNarrowWidth = 380;
constexpr double kDigitWidth = 7, kLeastWidth = 0.4;

struct Kind {
  const char* name;
  const char* title;
  const char* css_class;
};
constexpr std::array<Kind, 4> kKinds = {{
    {"forward", "Forward", "k-forward"},
    {"backward", "Backward", "k-backward"},
    {"input_gradient", "Gradient of inputs", "k-backward"},
    {"weight_gradient", "Gradient of weights", "k-reduce"},
}};

std::string ClassOf(const std::string& kind) {
  for (const Kind& known : kKinds) {
    if (kind == known.name) return known.css_class;
  }
  return "k-data";
}

// "Gradient of inputs"; of a kind that is not known its name.
std::string TitleOf(const std::string& kind) {
  for (const Kind& known : kKinds) {
    if (kind == known.name) return known.title;
  }
  return kind;
}

struct StageTimes {
  double busy = 0;
  std::map<std::string, std::pair<int64_t, double>> kinds;  // how many, their sum
};

StageTimes TimesOf(const std::vector<StageAction>& actions) {
  StageTimes times;
  for (const StageAction& action : actions) {
    const double took = action.end_ms - action.begin_ms;
    times.busy += took;
    auto& [count, sum] = times.kinds[action.kind];
    ++count;
    sum += took;
  }
  return times;
}

double EndOf(const PipelineTimeline& timeline) {
  double end = 0;
  for (const auto& stage : timeline.stages) {
    for (const StageAction& action : stage) end = std::max(end, action.end_ms);
  }
  return end;
}

// The share of all stages' time that they compute nothing.
double IdleShare(const PipelineTimeline& timeline, double end) {
  double busy = 0;
  for (const auto& stage : timeline.stages) busy += TimesOf(stage).busy;
  const double all = end * static_cast<double>(timeline.stages.size());
  return all > 0 ? std::clamp(1 - busy / all, 0.0, 1.0) : 0;
}

void DrawAction(const StageAction& action, bool odd_chunk, double x, double width, double y,
                Markup* out) {
  out->Open("g", {{"class", "action " + ClassOf(action.kind) + (odd_chunk ? " odd" : "")}});
  // What a pointer that rests on it is told.
  out->Leaf("title", {},
            TitleOf(action.kind) + " of micro-batch " + std::to_string(action.micro_batch) +
                " on chunk " + std::to_string(action.chunk) + ": " +
                MillisecondsText(action.end_ms - action.begin_ms) + ", from " +
                MillisecondsText(action.begin_ms));
  out->Leaf("rect",
            {{"x", x}, {"y", y}, {"width", std::max(0.5, width - 1)}, {"height", kRowHeight}});
  const std::string number = std::to_string(action.micro_batch);
  if (width > kDigitWidth * static_cast<double>(number.size()) + 3) {
    out->Leaf(
        "text",
        {{"x", x + width / 2 - 0.5}, {"y", y + kRowHeight / 2 + 4}, {"text-anchor", "middle"}},
        number);
  }
  out->Close();
}

void Draw(const PipelineTimeline& timeline, const Picture& picture, double end, Markup* out) {
  const double right = picture.width - kRightMargin;
  const Axis axis = LinearAxis(0, end,
                               {.unit = Unit::kMilliseconds,
                                .most = picture.width > kNarrowWidth ? 10 : 4,
                                .from_zero = true,
                                .margin = 0});
  const auto x_of = [&](double ms) { return kLeft + (right - kLeft) * axis.At(ms); };
  OpenPicture(picture, out);
  double y = kTop;
  const auto stages = static_cast<int64_t>(timeline.stages.size());
  for (int64_t stage = 0; stage < stages; ++stage) {
    out->Leaf("text", {{"x", kLeft - 8}, {"y", y + kRowHeight / 2 + 4}, {"text-anchor", "end"}},
              "Stage " + std::to_string(stage));
    out->Leaf("rect", {{"class", "lane"},
                       {"x", kLeft},
                       {"y", y},
                       {"width", right - kLeft},
                       {"height", kRowHeight}});
    double drawn = -1;
    for (const StageAction& action : timeline.stages[static_cast<size_t>(stage)]) {
      const double begin = x_of(action.begin_ms);
      if (x_of(action.end_ms) < drawn + kLeastWidth) continue;  // nobody would see it
      drawn = x_of(action.end_ms);
      DrawAction(action, action.chunk / stages % 2 == 1, begin, x_of(action.end_ms) - begin, y,
                 out);
    }
    y += kRowHeight + kRowGap;
  }
  out->Open("g", {{"class", "axis steps"}});
  for (const Tick& tick : axis.ticks) {
    out->Leaf("text", {{"x", x_of(tick.value)}, {"y", y + 10}, {"text-anchor", "middle"}},
              tick.label);
  }
  out->Close().Close();
}

void WriteTable(const PipelineTimeline& timeline, const std::set<std::string>& kinds, double end,
                const std::string& id, const std::string& run_name, Markup* out) {
  OpenTable(id, "Table", "Means of the actions of " + run_name, out);
  out->Open("thead").Open("tr").Leaf("th", {{"scope", "col"}}, "Stage");
  for (const Kind& kind : kKinds) {
    if (kinds.contains(kind.name)) out->Leaf("th", {{"scope", "col"}}, kind.title);
  }
  out->Leaf("th", {{"scope", "col"}}, "Computes").Leaf("th", {{"scope", "col"}}, "Idle");
  out->Close().Close().Open("tbody");
  for (size_t stage = 0; stage < timeline.stages.size(); ++stage) {
    const StageTimes times = TimesOf(timeline.stages[stage]);
    out->Open("tr").Leaf("th", {{"scope", "row"}}, std::to_string(stage));
    for (const Kind& kind : kKinds) {
      if (!kinds.contains(kind.name)) continue;
      const auto found = times.kinds.find(kind.name);
      out->Leaf("td", {},
                found == times.kinds.end()
                    ? ""
                    : std::to_string(found->second.first) + " x " +
                          MillisecondsText(found->second.second /
                                           static_cast<double>(found->second.first)));
    }
    out->Leaf("td", {}, MillisecondsText(times.busy));
    out->Leaf("td", {}, end > 0 ? PercentText(std::clamp(1 - times.busy / end, 0.0, 1.0)) : "");
    out->Close();
  }
  out->Close();
  CloseTable(out);
}

}  // namespace

Markup TimelineChart(const RunRecord& run, const std::string& id) {
  const PipelineTimeline& timeline = *run.pipeline;
  const double end = EndOf(timeline);
  std::set<std::string> kinds;
  for (const auto& stage : timeline.stages) {
    for (const StageAction& action : stage) kinds.insert(action.kind);
  }
  const std::string idle = "idle " + PercentText(IdleShare(timeline, end));
  const std::string step = NumberText(static_cast<double>(timeline.step), Unit::kSteps);
  const std::string title = "Step " + step + " of " + run.name + " as its stages computed it";
  Markup out;
  out.Open("figure", {{"class", "timeline"}, {"id", id}, {"aria-label", title}});
  out.Open("figcaption").Leaf("h3", {}, run.name);
  out.Leaf("span", {{"class", "at"}},
           "step " + step + ", measured; " + MillisecondsText(end) + ", " + idle);
  out.Close();
  const double height =
      kTop + static_cast<double>(timeline.stages.size()) * (kRowHeight + kRowGap) + 18;
  for (const bool wide : {true, false}) {
    Draw(timeline,
         {.id = id + (wide ? "-wide" : "-narrow"),
          .title = title,
          .description = std::to_string(timeline.stages.size()) + " stages, " +
                         MillisecondsText(end) + ", " + idle + ". The table holds each stage.",
          .width = wide ? kWideWidth : kNarrowWidth,
          .height = height,
          .css_class = wide ? "wide" : "narrow"},
         end, &out);
  }
  out.Open("ul", {{"class", "kinds"}});
  for (const Kind& kind : kKinds) {
    if (!kinds.contains(kind.name)) continue;
    out.Open("li").Leaf("span", {{"class", std::string("swatch ") + kind.css_class}});
    out.Text(kind.title).Close();
  }
  const bool several_chunks = std::any_of(
      timeline.stages[0].begin(), timeline.stages[0].end(),
      [&](const StageAction& action) { return action.chunk != timeline.stages[0][0].chunk; });
  out.Leaf("li", {{"class", "remark"}},
           std::string("numbers are micro-batches; empty space is waiting") +
               (several_chunks ? "; every second chunk of a stage is darker" : ""));
  out.Close();
  WriteTable(timeline, kinds, end, id, run.name, &out);
  out.Close();
  return out;
}

}  // namespace tessera::report
