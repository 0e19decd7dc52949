// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes: the mean of each phase, as a bar for each run
// (`wall_clock_breakdown`).
//
//   if (!PhasesOf(runs).empty()) page.Append(PhaseChart(runs));
#ifndef TESSERA_TOOLS_REPORT_PHASE_CHART_H_
#define TESSERA_TOOLS_REPORT_PHASE_CHART_H_

#include <vector>

#include "tools/report/markup.h"
#include "tools/report/run_record.h"

namespace tessera::report {

Markup PhaseChart(const std::vector<RunRecord>& runs);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_PHASE_CHART_H_
