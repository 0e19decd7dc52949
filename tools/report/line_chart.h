// SPDX-License-Identifier: Apache-2.0
// A number over the steps, a curve for each run.
//
//   const Axis steps = StepAxis(panels);
//   page.Append(LineChart(panel, runs, steps));
//
// All charts of a report have the same axis of steps. A <figure> holds the picture, the readings
// (the last values; the script shows those under its cursor), a table of at most 50 steps, and the
// drawn points as data for the script: `curves` with `x`, `y` and how `y` is read, the ranges of
// the axes, and whether smoothing makes sense. Where a row's number is not finite the curve is
// broken, and a cross is at the top.
#ifndef TESSERA_TOOLS_REPORT_LINE_CHART_H_
#define TESSERA_TOOLS_REPORT_LINE_CHART_H_

#include <vector>

#include "tools/report/markup.h"
#include "tools/report/panels.h"

namespace tessera::report {

Axis StepAxis(const std::vector<Panel>& panels);

Markup LineChart(const Panel& panel, const std::vector<RunRecord>& runs, const Axis& steps);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_LINE_CHART_H_
