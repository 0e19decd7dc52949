// SPDX-License-Identifier: Apache-2.0
// Checkpoints in the memory of the ranks' hosts, for a run that continues after it has lost ranks
// or a host.
//
//   MemoryCheckpoints memory({.folder = "/dev/shm/run", .host = "node3"}, world);
//   TESSERA_RETURN_IF_ERROR(memory.Save(step, engine.Tensors(), trainer_state));
//   ...                                                   // ranks start again
//   TESSERA_ASSIGN_OR_RETURN(std::optional<Checkpoint> newest, memory.FindNewest());
//   if (newest) TESSERA_RETURN_IF_ERROR(newest->Load(engine.Tensors(), world));
//
// The folder is in a file system in memory (tmpfs) and outlives the processes. A host has the files
// of its own ranks and copies of the files of the host before it, so that one host may be lost.
// With one host there are no copies. The directories are those of dist/checkpoint/checkpoint.h,
// but each has the index and only some of the files: ranks read their own hosts' files, and send
// each other what they lack.
//
// Memory: with P bytes of model and optimizer on H > 1 hosts, a host holds 2 P / H for each of two
// checkpoints. Sent by Save: each rank's file, to a rank of the next host.
#ifndef TESSERA_DIST_CHECKPOINT_MEMORY_CHECKPOINTS_H_
#define TESSERA_DIST_CHECKPOINT_MEMORY_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::dist {

struct MemoryFolder {
  std::string folder;  // of this host
  std::string host;    // the ranks with the same name share the folder
};

// All functions are collective over `world`, which outlives this object, and give all ranks the
// same status.
class MemoryCheckpoints {
 public:
  MemoryCheckpoints(MemoryFolder here, Communicator& world);

  // Writes `<folder>/checkpoint-<step>` on each host, and removes all but the newest two.
  Status Save(int64_t step, const std::vector<CheckpointTensor>& tensors,
              const nlohmann::json& trainer);
  // The newest whose files the hosts have together, undamaged; nullopt: there is none.
  StatusOr<std::optional<Checkpoint>> FindNewest() const;
  // Removes, on each host, those of steps behind `step`.
  Status RemoveAfter(int64_t step) const;

 private:
  // Files of an index that this rank has verified for its host.
  std::vector<std::string> VerifiedFiles(const CheckpointIndex& index) const;
  bool IsMaker() const { return makers_[static_cast<size_t>(world_.rank())] == world_.rank(); }
  Status CopyFiles(const std::string& own, const std::vector<std::string>& received) const;
  Status RemoveOlder() const;

  const MemoryFolder here_;
  Communicator& world_;
  std::vector<int> makers_;   // by rank: the lowest rank of its host
  int copies_to_ = -1;        // the rank of the next host that keeps this rank's file; -1: none
  std::vector<int> sources_;  // whose files this rank keeps
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_MEMORY_CHECKPOINTS_H_
