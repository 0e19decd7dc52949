// SPDX-License-Identifier: Apache-2.0
// The parts of a report that are words and tables: how the runs stand, how they were configured,
// what they wrote, their passes over the data.
#ifndef TESSERA_TOOLS_REPORT_OVERVIEW_H_
#define TESSERA_TOOLS_REPORT_OVERVIEW_H_

#include <vector>

#include "tools/report/markup.h"
#include "tools/report/run_record.h"

namespace tessera::report {

// State, steps, losses, speed, memory, model: tiles for one run, a table for several.
Markup Overview(const std::vector<RunRecord>& runs);

// Of one run the keys that have a value; of several those that differ, and the rest behind them.
// Empty where no run has a configuration.
Markup Configuration(const std::vector<RunRecord>& runs);

// The newest samples of each run, earlier ones behind them. Empty where there are none.
Markup SamplesOf(const std::vector<RunRecord>& runs);

// What happened to the ranks of elastic runs, and what it cost: a table for each.
Markup RankEvents(const std::vector<RunRecord>& runs);

// A table for each run that has epochs.
Markup Epochs(const std::vector<RunRecord>& runs);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_OVERVIEW_H_
