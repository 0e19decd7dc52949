// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: `<out>/checkpoint-<step>/`, whole or not there at all, written and read by
// all ranks at once.
//
//   TESSERA_RETURN_IF_ERROR(SaveCheckpoint(CheckpointPath(out, step), step, tensors, trainer_state,
//                                          *world));
//   TESSERA_ASSIGN_OR_RETURN(Checkpoint c, Checkpoint::Open(path, *world));
//   TESSERA_RETURN_IF_ERROR(c.Load(tensors, *world));
//
// Layout:
//   tensors-<rank>-of-<ranks>.safetensors   the pieces that a rank wrote, each under its tensor's
//                                           name (`<name>#<i>` for further ones)
//   checkpoint.json                         dist/checkpoint/index.h
// A tensor is a list of pieces of the unsharded one (dist/checkpoint/pieces.h), so that any layout,
// one process included, loads what another one saved. What several ranks hold is written by one.
//
// The functions that take a communicator are collective, and all ranks get the same status: a
// failure names the rank (where there are several) and the file. The ranks share a file system.
// Without a communicator they serve one process.
//
// A file that is missing or short, a checksum that does not fit, or an entry that lacks elements
// makes a checkpoint unusable, by name.
#ifndef TESSERA_DIST_CHECKPOINT_CHECKPOINT_H_
#define TESSERA_DIST_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/communicator.h"
#include "dist/checkpoint/index.h"
#include "dist/checkpoint/pieces.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::dist {

// Writes `directory` with one atomic rename; one that exists is replaced. `trainer` is rank 0's.
// Several ranks may hold the same pieces, and must then hold the same values; together they hold
// every element of every tensor.
Status SaveCheckpoint(const std::string& directory, int64_t step,
                      const std::vector<CheckpointTensor>& tensors, const nlohmann::json& trainer,
                      Communicator& world);
Status SaveCheckpoint(const std::string& directory, int64_t step,
                      const std::vector<CheckpointTensor>& tensors, const nlohmann::json& trainer);

// Replaces what the trainer says in a checkpoint that is whole, atomically; its tensors stay.
Status AmendCheckpoint(const std::string& directory, const nlohmann::json& trainer);

class Checkpoint {
 public:
  // Verifies everything: structure, sizes, and the checksums, which the ranks share out by bytes.
  static StatusOr<Checkpoint> Open(const std::string& directory, Communicator& world);
  static StatusOr<Checkpoint> Open(const std::string& directory);
  // One whose ranks share no file system: `keepers` names, for every file of the index, the rank
  // that has it in its own `directory` and has verified it. Load brings from there what others
  // need.
  static Checkpoint KeptBy(std::map<std::string, int> keepers, std::string directory,
                           CheckpointIndex index);

  const std::string& directory() const { return directory_; }
  int64_t step() const { return index_.step; }
  const nlohmann::json& trainer() const { return *index_.trainer; }
  const CheckpointEntries& entries() const { return index_.entries; }

  // Copies what is saved into each tensor's boxes or range. Over all ranks, the names must be the
  // checkpoint's; dtypes and unsharded shapes must be equal; the layout and the number of ranks
  // need not be. A rank reads only what it needs. After a failure the tensors hold old or new
  // values.
  Status Load(const std::vector<CheckpointTensor>& tensors, Communicator& world) const;
  Status Load(const std::vector<CheckpointTensor>& tensors) const;

 private:
  Status VerifyShare(Communicator& world) const;
  Status CheckNames(const std::vector<CheckpointTensor>& tensors, Communicator& world) const;

  std::string directory_;
  CheckpointIndex index_;
  std::map<std::string, int> keepers_;  // by file; empty: every rank reads all of them
};

std::string CheckpointPath(const std::string& out, int64_t step);

// The steps of the `checkpoint-<step>` directories in `out`, ascending; as this process sees it.
std::vector<int64_t> ListCheckpoints(const std::string& out);

// The newest checkpoint that is whole, the same one on all ranks. `warn` is called on rank 0 for
// each newer one that is damaged, or whose index holds another step than its name. nullopt: there
// is none. A checkpoint that cannot be read now (no permission, no memory, a failing disk) may be
// whole, so it is an error.
StatusOr<std::optional<Checkpoint>> FindNewestCheckpoint(
    const std::string& out, Communicator& world,
    const std::function<void(const std::string&)>& warn);
StatusOr<std::optional<Checkpoint>> FindNewestCheckpoint(
    const std::string& out, const std::function<void(const std::string&)>& warn);

// Removes those of steps behind `step`, but for a directory whose index tells of another step than
// its name.
Status RemoveCheckpointsAfter(const std::string& out, int64_t step);

// Which checkpoints are kept, by what their trainers wrote.
struct KeepRules {
  int64_t newest = 1;
  // Whether a run may continue from what a checkpoint holds.
  std::function<bool(const nlohmann::json& trainer)> is_sound;
  // The step of another one that it needs; nullptr: none needs another.
  std::function<std::optional<int64_t>(const nlohmann::json& trainer)> needs = nullptr;
};

// Removes all but the newest that can be read, as many of the sound ones, and those that one of
// these needs; of several ranks, rank 0 does. A directory whose index tells of another step than
// its name neither counts nor goes.
Status PruneCheckpoints(const std::string& out, const KeepRules& rules, Communicator& world);

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_CHECKPOINT_H_
