// SPDX-License-Identifier: Apache-2.0
#include "tools/report/page.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "net/html/page_assets.h"
#include "tools/report/line_chart.h"
#include "tools/report/markup.h"
#include "tools/report/overview.h"
#include "tools/report/page_assets.h"
#include "tools/report/panels.h"
#include "tools/report/phase_chart.h"
#include "tools/report/timeline_chart.h"

namespace tessera::report {
namespace {

std::string Escaped(std::string_view text) {
  Markup markup;
  markup.Text(text);
  return std::move(markup).Finish();
}

std::string TitleOf(const std::vector<RunRecord>& runs) {
  return runs.size() == 1 ? runs[0].name : std::to_string(runs.size()) + " runs";
}

Markup Charts(const std::vector<RunRecord>& runs) {
  Markup out;
  const std::vector<Panel> panels = ChoosePanels(runs);
  if (panels.empty()) {
    out.Leaf("p", {{"class", "empty"}}, "There are no rows of metrics yet.");
    return out;
  }
  const Axis steps = StepAxis(panels);
  out.Open("section").Leaf("h2", {}, "Over the steps").Open("div", {{"class", "charts"}});
  for (const Panel& panel : panels) out.Append(LineChart(panel, runs, steps));
  if (!PhasesOf(runs).empty()) out.Append(PhaseChart(runs));
  out.Close().Close();
  return out;
}

Markup Pipelines(const std::vector<RunRecord>& runs) {
  Markup out;
  const bool any = std::any_of(runs.begin(), runs.end(),
                               [](const RunRecord& run) { return run.pipeline.has_value(); });
  if (!any) return out;
  out.Open("section").Leaf("h2", {}, "Pipeline");
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].pipeline) out.Append(TimelineChart(runs[i], "pipeline-" + std::to_string(i)));
  }
  out.Close();
  return out;
}

}  // namespace

std::string MakePage(const std::vector<RunRecord>& runs, const PageOptions& options) {
  TESSERA_CHECK(!runs.empty(), "report", "there are no runs");
  Markup main;
  main.Append(Overview(runs)).Append(Charts(runs)).Append(Pipelines(runs));
  main.Append(RankEvents(runs))
      .Append(SamplesOf(runs))
      .Append(Epochs(runs))
      .Append(Configuration(runs));
  return net::Fill(kPageAssets.html, {{"title", Escaped(TitleOf(runs))},
                                      {"policy", net::SecurityPolicy(kPageAssets)},
                                      {"refresh", std::to_string(options.refresh_ms)},
                                      {"style", std::string(kPageAssets.css)},
                                      {"main", std::move(main).Finish()},
                                      {"script", std::string(kPageAssets.js)}});
}

}  // namespace tessera::report
