// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written while training continues.
//
//   AsyncCheckpointer saver;
//   TESSERA_RETURN_IF_ERROR(saver.Begin(path, step, tensors, trainer_state, *world));
//   ... training steps; at each, ranks tell each other saver.written() ...
//   TESSERA_RETURN_IF_ERROR(saver.Commit(*world));    // now, and not before, the checkpoint exists
//
// `Begin` copies what this rank has to write into host memory, which is all that holds a step up,
// and a thread writes it. No collective runs on that thread: `written` looks at this rank alone,
// and `Commit` is called on all ranks at the same point, e.g. at the first step at which all have
// written, before the next `Begin`, and at the end of the run. A `Commit` that comes early waits.
//
// The host copy (of 1 / ranks of the state, where all is replicated) is kept for the next save. A
// saver that is destroyed before `Commit` waits for its thread and leaves nothing behind.
#ifndef TESSERA_DIST_CHECKPOINT_ASYNC_CHECKPOINTER_H_
#define TESSERA_DIST_CHECKPOINT_ASYNC_CHECKPOINTER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "core/communicator.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/rank_writer.h"

namespace tessera::dist {

class AsyncCheckpointer {
 public:
  AsyncCheckpointer() = default;
  AsyncCheckpointer(const AsyncCheckpointer&) = delete;
  AsyncCheckpointer& operator=(const AsyncCheckpointer&) = delete;
  ~AsyncCheckpointer();

  // Collective. Arguments and failures as of SaveCheckpoint. The tensors may be changed as soon as
  // this returns. Throws Error while a save is pending.
  Status Begin(const std::string& directory, int64_t step,
               const std::vector<CheckpointTensor>& tensors, const nlohmann::json& trainer,
               Communicator& world);

  // Whether a `Begin` waits for its `Commit`. The same on all ranks.
  bool pending() const { return writer_.has_value(); }

  // Whether this rank's part is on the disk, or has failed: `Commit` will not wait for this rank.
  bool written() const { return written_.load(std::memory_order_acquire); }

  // Collective. Waits until every rank has written; then the checkpoint appears, or all ranks get
  // the same failure and nothing is left of it. Does nothing when no save is pending.
  Status Commit(Communicator& world);

 private:
  void CopyToHost(CheckpointWriter* writer);

  std::optional<CheckpointWriter> writer_;
  std::vector<Tensor> host_;  // of the latest save
  std::atomic<bool> written_ = false;
  std::thread thread_;
};

}  // namespace tessera::dist

#endif  // TESSERA_DIST_CHECKPOINT_ASYNC_CHECKPOINTER_H_
