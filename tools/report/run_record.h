// SPDX-License-Identifier: Apache-2.0
// What a training run left in its directory, read for a report: rows of metrics, samples, epochs,
// the pipeline's timeline, the configuration, and how far it has come.
//
//   TESSERA_ASSIGN_OR_RETURN(const std::vector<RunRecord> runs, ReadRuns({"runs/a", "runs/b"}));
//   runs[0].curves.at("loss").back().value;
//
// Only `metrics.jsonl` must be there. A run may be under way while it is read: each file is read at
// once, and what is being written comes next time.
#ifndef TESSERA_TOOLS_REPORT_RUN_RECORD_H_
#define TESSERA_TOOLS_REPORT_RUN_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tessera::report {

struct Point {
  int64_t step = 0;
  double value = 0;  // NaN: the row has no finite number there
};
// By ascending steps, one point for each.
using Curve = std::vector<Point>;

// The first of the lowest points that are finite; nullptr where none is.
const Point* LowestOf(const Curve& curve);

// `samples.jsonl`: lines that an evaluation wrote.
struct Samples {
  int64_t step = 0;
  std::vector<std::string> lines = {};
};

// `epochs.jsonl`: a pass over the data.
struct Epoch {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values = {};  // in the file's order; NaN: not finite
};

// `events.jsonl`: what happened to the ranks of an elastic run (tools/elastic/membership.h).
struct RankEvent {
  int64_t step = 0;        // that was done last
  std::string kind = {};   // "joined", "left", "started", "slow", "ended"
  std::string where = {};  // hosts and ranks
  std::string what = {};   // the reason, or what the ranks continued from
  std::optional<int64_t> lost_steps = {};
  std::optional<double> lost_seconds = {};
};

// `pipeline.json` (train/report/pipeline_timeline.h).
struct StageAction {
  std::string kind;
  int64_t chunk = 0;
  int64_t micro_batch = 0;
  double begin_ms = 0;
  double end_ms = 0;
};
struct PipelineTimeline {
  int64_t step = 0;
  std::vector<std::vector<StageAction>> stages;
};

enum class RunState { kFinished, kInProgress, kStopped };

struct RunRecord {
  std::string name;  // tells it from the report's other runs
  std::string path;
  std::map<std::string, Curve> curves;  // by the name that rows have for it
  std::vector<Samples> samples;
  std::vector<Epoch> epochs;
  std::vector<RankEvent> events;
  std::optional<PipelineTimeline> pipeline;
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  RunState state = RunState::kStopped;
  int64_t step = 0;                    // of the last row
  std::optional<int64_t> total_steps;  // nullopt: nothing says
  std::optional<int64_t> parameters;   // likewise; a checkpoint says
};

// Values beyond 1e300 count as not finite; what is no number makes no point. Where steps come twice
// the later line counts. NotFound without a `metrics.jsonl`; InvalidArgument names the file, and
// the line where there are lines.
StatusOr<RunRecord> ReadRun(const std::string& path);

// Names are the last parts of the paths, with as many parts before as tell the runs apart.
// InvalidArgument for a run that is given twice.
StatusOr<std::vector<RunRecord>> ReadRuns(const std::vector<std::string>& paths);

}  // namespace tessera::report

#endif  // TESSERA_TOOLS_REPORT_RUN_RECORD_H_
