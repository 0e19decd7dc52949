// SPDX-License-Identifier: Apache-2.0
// One run at a time in a directory.
//
//   std::optional<RunLock> lock;
//   TESSERA_RETURN_IF_ERROR(RunLock::Take("runs/book", &lock));
//   ...                                         // held until `lock` ends, or the process does
//   RunLock::IsHeld("runs/book")                // by any process of this machine
//
// The lock is the kernel's, on the file `run.lock`, which names the process that holds it: a
// process that was killed holds none, whatever the file says. Who only reads (`inspect`,
// `generate`) needs no lock. Within a process it may be taken several times.
#ifndef TESSERA_TRAIN_RUN_RUN_LOCK_H_
#define TESSERA_TRAIN_RUN_RUN_LOCK_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"

namespace tessera::train {

class RunLock {
 public:
  // Makes the directory where it is missing. FailedPrecondition names the process that holds it.
  static Status Take(const std::string& directory, std::optional<RunLock>* lock);
  // Whether a run is under way there, as the kernel's table of locks (/proc/locks) says: asking
  // takes no lock that a run which begins would find taken.
  static bool IsHeld(const std::string& directory);

 private:
  class Held;
  explicit RunLock(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  std::shared_ptr<Held> held_;
};

}  // namespace tessera::train

#endif  // TESSERA_TRAIN_RUN_RUN_LOCK_H_
