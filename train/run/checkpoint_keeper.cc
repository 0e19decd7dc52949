// SPDX-License-Identifier: Apache-2.0
#include "train/run/checkpoint_keeper.h"

#include <utility>

#include "base/file.h"
#include "models/hub/other_checkpoints.h"
#include "models/hub/weight_files.h"
#include "nlohmann/json.hpp"
#include "train/ranks/agreement.h"
#include "train/report/step_report.h"
#include "train/run/resume_state.h"

namespace tessera::train {

namespace {

// What else a folder is that was to be continued, and what can be done with it.
std::string OthersIn(const std::string& folder) {
  if (PathExists(JoinPath(folder, "config.json")) && models::WeightFiles::Exist(folder)) {
    return ", but a model's folder; give it as the model to begin from its weights";
  }
  const std::string others = models::CheckpointOfOthersIn(folder);
  return others.empty() ? "" : Concat(", but ", others);
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(CheckpointKeeperOptions options, const dist::Mesh& mesh)
    : options_(std::move(options)), mesh_(mesh) {}

bool CheckpointKeeper::empty() const { return dist::ListCheckpoints(options_.folder).empty(); }

StatusOr<std::optional<dist::Checkpoint>> CheckpointKeeper::FindNewest(const RunLog& log) const {
  return dist::FindNewestCheckpoint(options_.folder, *mesh_.world(),
                                    [&](const std::string& w) { log.OwnWarning(w); });
}

StatusOr<dist::Checkpoint> CheckpointKeeper::Open(const std::string& path,
                                                  const RunLog& log) const {
  // A run's folder stands for its newest checkpoint.
  if (GreatestOf(dist::ListCheckpoints(path).empty() ? 0 : 1, mesh_) != 0) {
    TESSERA_ASSIGN_OR_RETURN(
        std::optional<dist::Checkpoint> newest,
        dist::FindNewestCheckpoint(path, *mesh_.world(),
                                   [&](const std::string& w) { log.Warning(w); }));
    if (newest.has_value()) return *std::move(newest);
  }
  StatusOr<dist::Checkpoint> named = dist::Checkpoint::Open(path, *mesh_.world());
  Status status = named.status();
  if (status.code() == StatusCode::kNotFound && IsDirectory(path)) {
    status = NotFound(path, ": no checkpoint of a run (checkpoint.json)", OthersIn(path));
  }
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, status));
  return named;
}

Status CheckpointKeeper::RemoveAfter(int64_t step) const {
  return Agree(mesh_, mesh_.world()->rank() == 0
                          ? dist::RemoveCheckpointsAfter(options_.folder, step)
                          : OkStatus());
}

CheckpointKeeper::Appeared CheckpointKeeper::Save(
    int64_t step, const std::vector<dist::CheckpointTensor>& tensors,
    const nlohmann::json& trainer) {
  TESSERA_ASSIGN_OR_RETURN(std::optional<std::string> before, Finish());
  const std::string path = dist::CheckpointPath(options_.folder, step);
  Communicator& world = *mesh_.world();
  step_before_ = std::exchange(saved_step_, step);
  if (options_.async) {
    TESSERA_RETURN_IF_ERROR(Agree(mesh_, saver_.Begin(path, step, tensors, trainer, world)));
    return before;
  }
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, dist::SaveCheckpoint(path, step, tensors, trainer, world)));
  return AppearedNow();
}

CheckpointKeeper::Appeared CheckpointKeeper::Finish() {
  if (!saver_.pending()) return std::nullopt;
  TESSERA_RETURN_IF_ERROR(Agree(mesh_, saver_.Commit(*mesh_.world())));
  return AppearedNow();
}

Status CheckpointKeeper::Amend(const nlohmann::json& trainer) {
  if (mesh_.world()->rank() != 0) return Agree(mesh_, OkStatus());
  return Agree(mesh_,
               dist::AmendCheckpoint(dist::CheckpointPath(options_.folder, saved_step_), trainer));
}

Status CheckpointKeeper::Withdraw() {
  const std::string path = dist::CheckpointPath(options_.folder, saved_step_);
  saved_step_ = step_before_;
  return Agree(mesh_, mesh_.world()->rank() == 0 ? RemoveAll(path) : OkStatus());
}

Status CheckpointKeeper::Prune() {
  if (!std::exchange(prunes_, false) || options_.keep == 0) return OkStatus();
  return Agree(mesh_, dist::PruneCheckpoints(options_.folder,
                                             {.newest = options_.keep,
                                              .is_sound = ResumeState::IsFinite,
                                              .needs = ResumeState::BestStep},
                                             *mesh_.world()));
}

CheckpointKeeper::Appeared CheckpointKeeper::AppearedNow() {
  prunes_ = true;
  return dist::CheckpointPath(options_.folder, saved_step_);
}

}  // namespace tessera::train
