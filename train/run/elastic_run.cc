// SPDX-License-Identifier: Apache-2.0
#include "train/run/elastic_run.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "nlohmann/json.hpp"

namespace tessera::train {

std::string ElasticRun::ToText() const {
  return nlohmann::json{{"folder", folder},
                        {"host", host},
                        {"interval", interval},
                        {"ranks", ranks},
                        {"restarted", restarted}}
      .dump();
}

StatusOr<std::optional<ElasticRun>> ElasticRun::Of(const char* text) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  try {
    const nlohmann::json json = ParseJson(text, kVariable).value_or(nullptr);
    ElasticRun run = {.folder = json.at("folder").get<std::string>(),
                      .host = json.at("host").get<std::string>(),
                      .interval = json.at("interval").get<int64_t>(),
                      .ranks = json.at("ranks").get<int>(),
                      .restarted = json.at("restarted").get<bool>()};
    if (run.interval >= 0 && run.ranks > 0) return run;
  } catch (const nlohmann::json::exception&) {
    // Not what ToText gives.
  }
  return InvalidArgument(kVariable, ": '", text, "' is not what `tessera launch` sets");
}

namespace {

std::string ProgressFile(const std::string& folder, int rank) {
  return JoinPath(folder, Concat("rank-", rank));
}

}  // namespace

Status WriteProgress(const std::string& folder, int rank, const RankProgress& progress) {
  return WriteFileAtomically(ProgressFile(folder, rank),
                             Concat(progress.from_memory ? 1 : 0, " ", progress.begun_at, " ",
                                    progress.step, " ", progress.worked, "\n"));
}

std::optional<RankProgress> ReadProgress(const std::string& folder, int rank) {
  const StatusOr<std::string> text = ReadFile(ProgressFile(folder, rank));
  if (!text.ok()) return std::nullopt;
  std::istringstream words(*text);
  RankProgress progress;
  if (words >> progress.from_memory >> progress.begun_at >> progress.step >> progress.worked) {
    return progress;
  }
  return std::nullopt;
}

void RemoveProgress(const std::string& folder, int rank) {
  (void)RemoveAll(ProgressFile(folder, rank));
}

namespace {

// From `of` down.
std::vector<int64_t> DivisorsDown(int64_t of) {
  std::vector<int64_t> divisors;
  for (int64_t d = of; d >= 1; --d) {
    if (of % d == 0) divisors.push_back(d);
  }
  return divisors;
}

// nullopt: these axes do not fit the ranks or the micro-batches of a step.
std::optional<RunConfig> WithAxes(const RunConfig& config, int64_t micro_batches, int ranks,
                                  const dist::MeshSizes& axes) {
  const int64_t held = int64_t{axes.tp} * axes.pp * axes.cp;
  if (ranks % held != 0 || micro_batches % (ranks / held) != 0) return std::nullopt;
  if ((ranks / (axes.tp * axes.pp)) % axes.ep != 0) return std::nullopt;
  RunConfig layout = config;
  layout.tp = axes.tp;
  layout.pp = axes.pp;
  layout.cp = axes.cp;
  layout.ep = axes.ep;
  layout.sequence_parallel = config.sequence_parallel && axes.tp > 1;
  layout.gradient_accumulation_steps = micro_batches / (ranks / held);
  if (axes.pp == 1 && config.pp > 1) {
    for (const char* key : {"schedule", "num_model_chunks"}) layout.Unset(key);
  }
  if (!layout.Validate().ok() || !layout.ValidateFor(ranks).ok()) return std::nullopt;
  return layout;
}

}  // namespace

std::optional<RunConfig> LayoutOn(const RunConfig& config, int ranks, int others) {
  if (others == ranks) return config;
  const int64_t micro_batches =
      config.accumulation_steps() * ranks / (config.tp * config.pp * config.cp);
  for (const int64_t pp : DivisorsDown(config.pp)) {
    for (const int64_t tp : DivisorsDown(config.tp)) {
      for (const int64_t cp : DivisorsDown(config.cp)) {
        for (const int64_t ep : DivisorsDown(config.ep)) {
          const dist::MeshSizes axes = {.tp = static_cast<int>(tp),
                                        .pp = static_cast<int>(pp),
                                        .ep = static_cast<int>(ep),
                                        .cp = static_cast<int>(cp)};
          if (auto layout = WithAxes(config, micro_batches, others, axes)) return layout;
        }
      }
    }
  }
  return std::nullopt;
}

int MostRanks(const RunConfig& config, int ranks, int there) {
  for (int most = std::min(ranks, there); most >= 1; --most) {
    if (LayoutOn(config, ranks, most)) return most;
  }
  return 0;
}

}  // namespace tessera::train
