// SPDX-License-Identifier: Apache-2.0
// What a command makes sure of before it writes: that no output is one of its inputs, that it
// replaces nothing of somebody else's, and that no other process writes there.
//
//   TESSERA_RETURN_IF_ERROR(RefuseInputs({"out.jsonl"}, {"in/"}));
//   std::optional<OutputLock> lock;
//   TESSERA_RETURN_IF_ERROR(OutputLock::Take("out.jsonl", &lock));
#ifndef TESSERA_CORE_OUTPUT_FILES_H_
#define TESSERA_CORE_OUTPUT_FILES_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"

namespace tessera {

// InvalidArgument where one of `outputs` is one of `inputs`, or a file below one that is a folder:
// files are compared, not names, so that links and other spellings do not matter. What does not
// exist is no other file.
Status RefuseInputs(const std::vector<std::string>& outputs,
                    const std::vector<std::string>& inputs);

// What the lock file that is open says of its holder: "process 1234 on host".
std::string LockHolderOf(int file);
// Makes it say so of this process.
Status WriteLockHolder(int file, const std::string& path);

// The right to write a file, held by one process at a time: `<path>.lock`, which is removed with
// the lock. A killed process leaves it, and holds nobody up.
class OutputLock {
 public:
  // FailedPrecondition with the process that has it.
  static Status Take(const std::string& path, std::optional<OutputLock>* lock);

  OutputLock(OutputLock&& other) noexcept
      : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();

 private:
  OutputLock(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::string path_;  // of the lock
  int file_;
};

}  // namespace tessera

#endif  // TESSERA_CORE_OUTPUT_FILES_H_
