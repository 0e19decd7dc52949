// SPDX-License-Identifier: Apache-2.0
// What a report draws over the steps: which numbers of which runs, in which order, under which
// title.
//
//   const std::vector<Panel> panels = ChoosePanels(runs);
//   for (const Panel& panel : panels) page.Append(LineChart(panel, runs, StepAxis(panels)));
#ifndef TESSERA_TOOLS_REPORT_PANELS_H_
#define TESSERA_TOOLS_REPORT_PANELS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/numbers.h"
#include "tools/report/run_record.h"

namespace tessera::report {

struct Series {
  size_t run = 0;  // its index
  Curve curve;     // not empty
};

struct Panel {
  std::string name;        // of the rows' numbers
  std::string title = {};  // TitleOf
  Unit unit = Unit::kNone;
  bool from_zero = false;       // sizes and rates: lengths are compared
  bool lowest_is_best = false;  // losses
  bool smooths = true;          // a mean over neighbours says more than each does
  std::vector<Series> series = {};
};

// Numbers that no run has get no panel. Names that are not known come last.
std::vector<Panel> ChoosePanels(const std::vector<RunRecord>& runs);

// Of a name in rows, for people: "Validation loss" of "val_loss".
std::string TitleOf(const std::string& name);

// "data_ms", "forward_ms", ... of the phases that took time in any row, in the order of a step.
std::vector<std::string> PhasesOf(const std::vector<RunRecord>& runs);
// "Forward".
std::string PhaseTitle(const std::string& phase);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_PANELS_H_
