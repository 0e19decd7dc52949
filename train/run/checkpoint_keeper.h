// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a run, in `<folder>/checkpoint-<step>`: written at once or while training goes
// on, the oldest removed, the newest whole one found again.
//
//   CheckpointKeeper keeper({.folder = config.out, .keep = 2, .async = true}, mesh);
//   TESSERA_ASSIGN_OR_RETURN(auto newest, keeper.FindNewest(log));   // or keeper.Open(path, log)
//   ...
//   TESSERA_ASSIGN_OR_RETURN(auto appeared, keeper.Save(step, engine.Tensors(), trainer_state));
//   TESSERA_ASSIGN_OR_RETURN(appeared, keeper.Finish());
//
// The newest may hold weights that the next step shows to be no numbers; older ones go only when
// the run knows better (Prune).
//
// All calls but the accessors are collective over the mesh's world; a failure of one rank is every
// rank's.
#ifndef TESSERA_TRAIN_RUN_CHECKPOINT_KEEPER_H_
#define TESSERA_TRAIN_RUN_CHECKPOINT_KEEPER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dist/checkpoint/async_checkpointer.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/mesh/mesh.h"
#include "nlohmann/json_fwd.hpp"
#include "train/report/run_log.h"

namespace tessera::train {

struct CheckpointKeeperOptions {
  std::string folder;
  int64_t keep = 1;    // so many of the newest
  bool async = false;  // a step waits for the copy to host memory only
};

class CheckpointKeeper {
 public:
  // The folder of a checkpoint that a call has made whole; nullopt: none.
  using Appeared = StatusOr<std::optional<std::string>>;

  CheckpointKeeper(CheckpointKeeperOptions options, const dist::Mesh& mesh);

  bool empty() const;
  // The newest that verifies; `log` names those that are passed over. nullopt: there is none.
  StatusOr<std::optional<dist::Checkpoint>> FindNewest(const RunLog& log) const;
  // A checkpoint, or the newest of a run's folder.
  StatusOr<dist::Checkpoint> Open(const std::string& path, const RunLog& log) const;
  // Those behind `step` are either damaged or about to be made again.
  Status RemoveAfter(int64_t step) const;

  // With `async` the checkpoint appears in a later call, and what appears in this one is the one
  // before it.
  Appeared Save(int64_t step, const std::vector<dist::CheckpointTensor>& tensors,
                const nlohmann::json& trainer);
  // Waits for the checkpoint that is on its way, if one is.
  Appeared Finish();
  // Writes what `trainer` says now into the newest one, which is on the disk and in `folder`.
  Status Amend(const nlohmann::json& trainer);
  // Removes the newest one, which turned out to be worth nothing.
  Status Withdraw();
  // Removes older ones, where one has appeared since the last call: `options.keep` are left, as
  // many that were saved while losses were numbers (ResumeState::finite), and what these know as
  // the best (ResumeState::BestStep).
  Status Prune();

  // Whether one is on its way, the same on all ranks, and whether this rank has done its part.
  bool pending() const { return saver_.pending(); }
  bool written() const { return saver_.written(); }
  // Of the newest that was begun, or that the run continues from; -1: none.
  int64_t saved_step() const { return saved_step_; }
  void ContinueFrom(int64_t step) {
    saved_step_ = step;
    prunes_ = true;  // a run that was killed may have left more than it would keep
  }

 private:
  Appeared AppearedNow();

  const CheckpointKeeperOptions options_;
  const dist::Mesh mesh_;
  dist::AsyncCheckpointer saver_;
  int64_t saved_step_ = -1;
  int64_t step_before_ = -1;  // saved_step() before the last Save
  bool prunes_ = false;       // one has appeared
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_CHECKPOINT_KEEPER_H_
