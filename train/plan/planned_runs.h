// SPDX-License-Identifier: Apache-2.0
// Runs beside their plans, for tests: a run trains on ranks that are threads and take turns
// (dist/dry_run/rank_meter.h), so that what each of them uses can be told apart.
#ifndef TESSERA_TRAIN_PLAN_PLANNED_RUNS_H_
#define TESSERA_TRAIN_PLAN_PLANNED_RUNS_H_

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/dry_run/rank_meter.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "train/plan/plan.h"
#include "train/run/run_setup.h"
#include "train/testing/task_runs.h"
#include "train/trainer.h"

namespace tessera::train {

using Settings = std::vector<std::pair<std::string, std::string>>;

// What a rank of a run has used.
struct Use {
  int64_t peak = 0;
  int64_t save = 0;  // most bytes while the model or the adapter is saved
  int64_t host = 0;
  std::map<std::string, int64_t> sent;  // in the third step, by group
};

// Bytes sent so far, by group.
inline std::map<std::string, int64_t> Sent(const dist::RankMeter& meter) {
  std::map<std::string, int64_t> sent;
  for (const dist::CommCall& call : meter.calls()) {
    if (call.ranks > 1) sent[call.group] += call.sent;
  }
  return sent;
}

inline Use TrainRank(const RunConfig& config, const dist::Group& world, dist::RankMeter& meter) {
  const auto mesh = MakeMesh(config, world);
  TESSERA_CHECK(mesh.ok(), "test", Message(mesh.status()));
  auto setup = PrepareRun(config, *mesh);
  TESSERA_CHECK(setup.ok(), "test", Message(setup.status()));
  // A step begins with its batches; it asks for its learning rate behind that.
  std::vector<std::map<std::string, int64_t>> sent;
  TrainerParts parts;
  parts.learning_rate.run = [&](int64_t, int64_t) {
    sent.push_back(Sent(meter));
    return 1e-3;
  };
  Trainer trainer(setup->config, *setup->model, setup->data, *mesh, std::move(parts));
  const auto result = trainer.Train({.output = nullptr});
  TESSERA_CHECK(result.ok(), "test", Message(result.status()));
  const int64_t trained = meter.peak_bytes(Device::Cpu());
  const int64_t host = meter.peak_bytes(Device::Host());
  meter.ResetPeaks();
  const Status saved = trainer.SaveModel(JoinPath(config.out, "model"), nullptr);
  TESSERA_CHECK(saved.ok(), "test", Message(saved));
  const int64_t save = meter.peak_bytes(Device::Cpu());
  Use use = {.peak = std::max(trained, save),
             .save = save,
             .host = std::max(host, meter.peak_bytes(Device::Host())),
             .sent = sent.at(2)};
  for (const auto& [group, bytes] : sent.at(1)) use.sent[group] -= bytes;
  return use;
}

class PlanTest : public TaskRuns {
 protected:
  void SetUp() override {
    TaskRuns::SetUp();
    std::string text;
    for (int i = 0; i < 4000; ++i) text += Concat("the film was good and plot ", i, " was bad .\n");
    Put("text.txt", text);
    Put("lines.txt", text);
  }

  RunConfig ConfigOf(const Settings& settings) const {
    RunConfig config = Config("gpt-tiny", Path("text.txt"));
    config.tokenizer = "byte";
    config.threads = 1;
    config.batch_size = 2;
    config.seq_len = 32;
    config.max_steps = 8;
    config.log_interval = 100;
    config.save_strategy = "no";
    Set(settings, &config);
    return config;
  }

  static void Set(const Settings& settings, RunConfig* config) {
    for (const auto& [key, value] : settings) {
      if (key == "model") {
        config->model = value;
        if (value == "vit-mini" || value == "t5-mini") config->seq_len.reset();
        continue;
      }
      const Status set = SetRunConfigField(config, key, value);
      TESSERA_CHECK(set.ok(), "test", Message(set));
    }
  }

  static std::vector<Use> RunRanks(const RunConfig& config, int ranks) {
    std::filesystem::remove_all(config.out);
    std::vector<Use> uses(static_cast<size_t>(ranks));
    dist::MeasureRanks(
        ranks, {Device::Cpu(), Device::Host()},
        [&](const dist::Group& world, const std::shared_ptr<dist::RankMeter>& meter) {
          uses[static_cast<size_t>(world->rank())] = TrainRank(config, world, *meter);
        });
    return uses;
  }

  // Bytes of each rank's file of the last checkpoint.
  static std::vector<int64_t> WrittenBytes(const RunConfig& config, int ranks) {
    const auto checkpoint =
        dist::Checkpoint::Open(dist::CheckpointPath(config.out, *config.max_steps));
    TESSERA_CHECK(checkpoint.ok(), "test", Message(checkpoint.status()));
    std::vector<int64_t> written(static_cast<size_t>(ranks), 0);
    for (const auto& [name, entry] : checkpoint->entries()) {
      for (const dist::SavedPiece& saved : entry.pieces) {
        const size_t rank = std::stoul(saved.file.substr(std::string("tensors-").size()));
        written.at(rank) += saved.piece.numel() * static_cast<int64_t>(DTypeSize(entry.dtype));
      }
    }
    return written;
  }

  StatusOr<Plan> PlanOf(const RunConfig& config, int ranks) const {
    return MakePlan(config, {.ranks = ranks, .cache = Path("plan")});
  }

  // Loaders of other ranks make batches in a rank's turn, which count as this rank's. Of models
  // whose passes depend on what is in a batch (masked tokens, padding) a plan is of the largest
  // one.
  void Compare(const RunConfig& config, int ranks, bool exact = true) const {
    const StatusOr<Plan> plan = PlanOf(config, ranks);
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    const std::vector<Use> real = RunRanks(config, ranks);
    for (size_t r = 0; r < real.size(); ++r) {
      SCOPED_TRACE(Concat("rank ", r, " of ", ranks));
      const RankPlan& rank = plan->ranks[r];
      const auto peak = static_cast<double>(real[r].peak);
      const int64_t noise = ranks == 1 ? 0 : 6 * ranks * BatchBytes(config);
      const auto planned = static_cast<double>(rank.peak_bytes);
      EXPECT_GE(planned, peak - (exact ? 1e-3 * peak : 0) - noise) << nlohmann::json(rank.peaks);
      EXPECT_LE(planned, peak * (exact ? 1.001 : 1.1) + noise) << nlohmann::json(rank.peaks);
      EXPECT_EQ(rank.host_bytes, real[r].host);
      std::map<std::string, int64_t> sent;
      for (const auto& [group, totals] : rank.communication) sent[group] = totals.sent;
      std::map<std::string, int64_t> run = real[r].sent;
      std::erase_if(run, [&](const auto& entry) { return !sent.contains(entry.first); });
      EXPECT_EQ(run.size(), sent.size());
      if (exact) {
        EXPECT_EQ(sent, run);
      }
      for (const auto& [group, bytes] : run) EXPECT_GE(sent[group], bytes) << group;
    }
  }

  // About what a batch takes: two int64 for each token. Rows of spans to be filled in have 512
  // tokens and their targets.
  static int64_t BatchBytes(const RunConfig& config) {
    const bool spans = config.task == "span_corruption";
    return spans ? config.batch_size * 640 * 16 : int64_t{2048};
  }
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_PLAN_PLANNED_RUNS_H_
