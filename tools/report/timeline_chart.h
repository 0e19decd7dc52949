// SPDX-License-Identifier: Apache-2.0
// The step of a pipeline: what each stage computed, and when (`pipeline.json`).
//
//   page.Append(TimelineChart(run, "pipeline-0"));
//
// The picture is there twice, for wide and for narrow columns; the style sheet shows one of them.
#ifndef TESSERA_TOOLS_REPORT_TIMELINE_CHART_H_
#define TESSERA_TOOLS_REPORT_TIMELINE_CHART_H_

#include <string>

#include "tools/report/markup.h"
#include "tools/report/run_record.h"

namespace tessera::report {

// `run.pipeline` is there.
Markup TimelineChart(const RunRecord& run, const std::string& id);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_TIMELINE_CHART_H_
