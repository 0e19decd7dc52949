// SPDX-License-Identifier: Apache-2.0
#include "tools/report/run_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/file.h"
#include "base/json_ordered.h"
#include "dist/checkpoint/checkpoint.h"
#include "tools/report/json_lines.h"
#include "train/run/run_lock.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

constexpr double kGreatest = 1e300;  // differences of such numbers are still numbers

// Rows have null where a number is not finite.
std::optional<double> NumberOf(const ordered_json& value) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (value.is_null()) return kNone;
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::abs(number) <= kGreatest ? number : kNone;
}

void SortByStep(Curve* curve) {
  std::stable_sort(curve->begin(), curve->end(),
                   [](const Point& a, const Point& b) { return a.step < b.step; });
  size_t kept = 0;
  for (const Point& point : *curve) {
    if (kept > 0 && (*curve)[kept - 1].step == point.step) --kept;
    (*curve)[kept++] = point;
  }
  curve->resize(kept);
}

Status ReadMetrics(const std::string& folder, RunRecord* run) {
  const std::string path = JoinPath(folder, "metrics.jsonl");
  if (!IsDirectory(folder)) return NotFound(folder, ": is no directory of a run");
  if (!PathExists(path)) return NotFound(path, ": is missing; is this a run's directory?");
  TESSERA_RETURN_IF_ERROR(ForEachRow(path, [&](const Row& row) {
    run->step = std::max(run->step, row.step);
    for (const auto& [name, value] : row.json.items()) {
      if (name == "step" || name == "samples") continue;  // they only count
      if (const auto number = NumberOf(value)) run->curves[name].push_back({row.step, *number});
    }
  }));
  for (auto& [name, curve] : run->curves) SortByStep(&curve);
  return OkStatus();
}

Status ReadSamples(const std::string& folder, RunRecord* run) {
  const std::string path = JoinPath(folder, "samples.jsonl");
  if (!PathExists(path)) return OkStatus();
  return ForEachRow(path, [&](const Row& row) {
    Samples samples = {.step = row.step};
    const auto lines = row.json.find("samples");
    if (lines == row.json.end() || !lines->is_array()) return;
    for (const ordered_json& line : *lines) {
      if (line.is_string()) samples.lines.push_back(line.get<std::string>());
    }
    if (!samples.lines.empty()) run->samples.push_back(std::move(samples));
  });
}

Status ReadEpochs(const std::string& folder, RunRecord* run) {
  const std::string path = JoinPath(folder, "epochs.jsonl");
  if (!PathExists(path)) return OkStatus();
  return ForEachRow(path, [&](const Row& row) {
    Epoch epoch = {.step = row.step};
    for (const auto& [name, value] : row.json.items()) {
      const auto number = NumberOf(value);
      if (name != "step" && number) epoch.values.emplace_back(name, *number);
    }
    run->epochs.push_back(std::move(epoch));
  });
}

// A value as a cell shows it: "hostA", "0, 1".
std::string CellOf(const ordered_json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return found->dump();
  std::string cell;
  for (const ordered_json& item : *found) {
    cell +=
        Concat(cell.empty() ? "" : ", ", item.is_string() ? item.get<std::string>() : item.dump());
  }
  return cell;
}

Status ReadEvents(const std::string& folder, RunRecord* run) {
  const std::string path = JoinPath(folder, "events.jsonl");
  if (!PathExists(path)) return OkStatus();
  return ForEachRow(path, [&](const Row& row) {
    RankEvent event = {.step = row.step, .kind = CellOf(row.json, "event")};
    event.where = CellOf(row.json, row.json.contains("hosts") ? "hosts" : "host");
    const std::string ranks = CellOf(row.json, "ranks");
    if (event.kind == "started") {
      event.what = Concat(ranks, " ranks from ", CellOf(row.json, "from"));
    } else {
      const bool is_one = ranks.find(',') == std::string::npos;
      if (!ranks.empty()) event.where += Concat(is_one ? ": rank " : ": ranks ", ranks);
      event.what = CellOf(row.json, "reason");
    }
    if (row.json.contains("seconds")) event.lost_seconds = NumberOf(row.json["seconds"]);
    if (const auto steps = row.json.find("lost_steps");
        steps != row.json.end() && steps->is_number_integer()) {
      event.lost_steps = steps->get<int64_t>();
    }
    run->events.push_back(std::move(event));
  });
}

StatusOr<ordered_json> ReadObject(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ordered_json json = ParseOrderedJson(text, path).value_or(ordered_json());
  if (!json.is_object()) return InvalidArgument(path, ": is no JSON object");
  return json;
}

StatusOr<StageAction> ActionOf(const ordered_json& json, const std::string& path) {
  const auto number = [&](const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found == json.end() ? std::nullopt : NumberOf(*found);
  };
  const auto chunk = number("chunk"), micro_batch = number("micro_batch");
  const auto begin = number("begin_ms"), end = number("end_ms");
  constexpr double kMost = 1e15;  // of any of them
  const bool sound = chunk && micro_batch && begin && end && *chunk >= 0 && *chunk < kMost &&
                     *micro_batch >= 0 && *micro_batch < kMost && *begin >= 0 && *begin <= *end &&
                     *end < kMost && json.contains("kind") && json["kind"].is_string();
  if (!sound)
    return InvalidArgument(path, ": holds an action that is none: ", json.dump().substr(0, 200));
  return StageAction{json["kind"].get<std::string>(), static_cast<int64_t>(*chunk),
                     static_cast<int64_t>(*micro_batch), *begin, *end};
}

Status ReadPipeline(const std::string& folder, RunRecord* run) {
  const std::string path = JoinPath(folder, "pipeline.json");
  if (!PathExists(path)) return OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const ordered_json json, ReadObject(path));
  PipelineTimeline timeline;
  timeline.step =
      json.value("step", ordered_json()).is_number_integer() ? json["step"].get<int64_t>() : 0;
  const ordered_json stages = json.value("stages", ordered_json());
  if (!stages.is_array()) return InvalidArgument(path, ": 'stages' is no list");
  for (const ordered_json& stage : stages) {
    const ordered_json actions =
        stage.is_object() ? stage.value("actions", ordered_json()) : ordered_json();
    if (!actions.is_array()) return InvalidArgument(path, ": a stage has no list of 'actions'");
    std::vector<StageAction>& taken = timeline.stages.emplace_back();
    for (const ordered_json& action : actions) {
      TESSERA_ASSIGN_OR_RETURN(StageAction read, ActionOf(action, path));
      taken.push_back(std::move(read));
    }
  }
  if (!timeline.stages.empty()) run->pipeline = std::move(timeline);
  return OkStatus();
}

// --- How far it has come -------------------------------------------------------------------------

// The newest index that can be read: its checksum is compared, those of the tensors are not.
std::optional<dist::CheckpointIndex> NewestIndex(const std::string& folder) {
  std::vector<int64_t> steps = dist::ListCheckpoints(folder);
  std::reverse(steps.begin(), steps.end());
  for (const int64_t step : steps) {
    const std::string path = JoinPath(dist::CheckpointPath(folder, step), "checkpoint.json");
    const auto text = ReadFile(path);
    if (!text.ok()) continue;
    auto index = dist::ParseIndex(*text, path);
    if (index.ok()) return *std::move(index);
  }
  return std::nullopt;
}

int64_t ParametersOf(const dist::CheckpointIndex& index) {
  int64_t count = 0;
  for (const auto& [name, entry] : index.entries) {
    if (name.rfind("model.", 0) == 0) count += entry.shape.numel();
  }
  return count;
}

// As the trainer says; of a run of an earlier version, what `epochs` passes over the samples take.
std::optional<int64_t> TotalSteps(const ordered_json& config, const nlohmann::json& trainer) {
  const auto positive = [](const auto& object, const char* key) -> double {
    if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return 0;
    const double value = object[key].template get<double>();
    return value > 0 && value < 1e15 ? value : 0;
  };
  if (const double steps = positive(config, "max_steps"); steps > 0) {
    return static_cast<int64_t>(steps);
  }
  if (const double steps = positive(trainer, "total_steps"); steps > 0) {
    return static_cast<int64_t>(steps);
  }
  const double samples = std::ceil(positive(config, "epochs") * positive(trainer, "data_samples"));
  const double batch = positive(trainer, "global_batch");
  if (samples <= 0 || batch <= 0) return std::nullopt;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(samples / batch)));
}

// Whether the model was saved after the last row: a run may end before its last step, by early
// stopping say, and a run that continues has the model of before.
bool HasItsModel(const std::string& folder) {
  std::error_code no_model, no_rows;
  const auto model = std::filesystem::last_write_time(JoinPath(folder, "model"), no_model);
  const auto rows = std::filesystem::last_write_time(JoinPath(folder, "metrics.jsonl"), no_rows);
  return !no_model && !no_rows && model >= rows;
}

void FindProgress(const std::string& folder, RunRecord* run) {
  nlohmann::json trainer;
  if (const auto index = NewestIndex(folder)) {
    trainer = *index->trainer;
    run->parameters = ParametersOf(*index);
  }
  run->total_steps = TotalSteps(run->config, trainer);
  const bool complete = (run->total_steps && run->step >= *run->total_steps) || HasItsModel(folder);
  run->state = train::RunLock::IsHeld(folder) ? RunState::kInProgress
               : complete                     ? RunState::kFinished
                                              : RunState::kStopped;
}

// --- Names ---------------------------------------------------------------------------------------

// The last `count` parts of a path.
std::string LastParts(const std::filesystem::path& path, int count) {
  std::filesystem::path last;
  auto part = path.end();
  for (int i = 0; i < count && part != path.begin(); ++i) {
    --part;
    last = last.empty() ? *part : *part / last;
  }
  return last.string();
}

}  // namespace

const Point* LowestOf(const Curve& curve) {
  const Point* lowest = nullptr;
  for (const Point& point : curve) {
    if (std::isnan(point.value)) continue;
    if (lowest == nullptr || point.value < lowest->value) lowest = &point;
  }
  return lowest;
}

StatusOr<RunRecord> ReadRun(const std::string& path) {
  RunRecord run;
  run.path = path;
  TESSERA_RETURN_IF_ERROR(ReadMetrics(path, &run));
  TESSERA_RETURN_IF_ERROR(ReadSamples(path, &run));
  TESSERA_RETURN_IF_ERROR(ReadEpochs(path, &run));
  TESSERA_RETURN_IF_ERROR(ReadEvents(path, &run));
  TESSERA_RETURN_IF_ERROR(ReadPipeline(path, &run));
  const std::string config = JoinPath(path, "config.json");
  if (PathExists(config)) {
    TESSERA_ASSIGN_OR_RETURN(run.config, ReadObject(config));
  }
  FindProgress(path, &run);
  return run;
}

StatusOr<std::vector<RunRecord>> ReadRuns(const std::vector<std::string>& paths) {
  std::vector<RunRecord> runs;
  std::vector<std::filesystem::path> whole;
  for (const std::string& path : paths) {
    TESSERA_ASSIGN_OR_RETURN(RunRecord run, ReadRun(path));
    runs.push_back(std::move(run));
    std::error_code error;
    whole.push_back(std::filesystem::weakly_canonical(path, error));
    if (error) return SystemFailure(error.value(), path);
    if (std::find(whole.begin(), whole.end() - 1, whole.back()) != whole.end() - 1) {
      return InvalidArgument(path, ": is given twice");
    }
  }
  // Those whose names are another's, too, get one part more until none is.
  std::vector<int> parts(runs.size(), 1);
  for (bool apart = false; !apart;) {
    std::map<std::string, int> uses;
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i].name = LastParts(whole[i], parts[i]);
      ++uses[runs[i].name];
    }
    apart = true;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (uses[runs[i].name] == 1) continue;
      ++parts[i];
      apart = false;
    }
  }
  return runs;
}

}  // namespace tessera::report
