#include "tools/report/page.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "tools/report/line_chart.h"
#include "tools/report/markup.h"
#include "tools/report/overview.h"
#include "tools/report/page_assets.h"
#include "tools/report/panels.h"
#include "tools/report/phase_chart.h"
#include "tools/report/timeline_chart.h"

namespace tessera::report {
namespace {

// Every {{name}} by its part; parts are put in as they are.
std::string Fill(std::string_view page, const std::map<std::string_view, std::string>& parts) {
  std::string filled;
  for (size_t at = 0; at < page.size();) {
    const size_t open = page.find("{{", at);
    filled += page.substr(at, open - at);
    if (open == std::string_view::npos) break;
    const size_t close = page.find("}}", open);
    TESSERA_CHECK(close != std::string_view::npos, "report", "{{ without }}");
    const auto part = parts.find(page.substr(open + 2, close - open - 2));
    TESSERA_CHECK(part != parts.end(), "report", "the page asks for what there is not");
    filled += part->second;
    at = close + 2;
  }
  return filled;
}

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
  main.Append(SamplesOf(runs)).Append(Epochs(runs)).Append(Configuration(runs));
  const std::string policy =
      "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
      "img-src data:; style-src 'sha256-" +
      std::string(kPageCssSha256) + "'; script-src 'sha256-" + std::string(kPageJsSha256) + "'";
  return Fill(kPageHtml, {{"title", Escaped(TitleOf(runs))},
                          {"policy", policy},
                          {"refresh", std::to_string(options.refresh_ms)},
                          {"style", std::string(kPageCss)},
                          {"main", std::move(main).Finish()},
                          {"script", std::string(kPageJs)}});
}

}  // namespace tessera::report
