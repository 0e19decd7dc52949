// SPDX-License-Identifier: Apache-2.0
// `<out>/pipeline.json`: what every stage of a pipeline computed in the last step of a row of
// metrics, and when. `wall_clock_breakdown` asks for it; `tessera report` draws it.
//
//   {"step": 10, "stages": [{"stage": 0, "actions": [
//     {"kind": "forward", "chunk": 0, "micro_batch": 0, "begin_ms": 0.1, "end_ms": 4.2}, ...]},
//     ...]}
//
// Kinds are `forward`, `backward` (whole), `input_gradient` and `weight_gradient`; what lies
// between two actions is waiting. Times are from the beginning of the step on the stage's own rank;
// ranks begin a step together, up to the time of a message.
#ifndef TESSERA_TRAIN_REPORT_PIPELINE_TIMELINE_H_
#define TESSERA_TRAIN_REPORT_PIPELINE_TIMELINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "dist/mesh/mesh.h"
#include "dist/pipeline/executor.h"

namespace tessera::train {

// Replaces the file by the timelines of the stages that the printing rank is one of. Collective
// over the mesh's pp axis; the printing rank writes, and its status tells how that went.
Status WritePipelineTimeline(const std::string& folder, int64_t step,
                             const std::vector<dist::TimedAction>& mine, const dist::Mesh& mesh);
Status RemovePipelineTimeline(const std::string& folder);

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_REPORT_PIPELINE_TIMELINE_H_
