// SPDX-License-Identifier: Apache-2.0
// What a command makes sure of before it writes: that no output is one of its inputs, that it
// replaces nothing of somebody else's, and that no other process writes there.
//
//   std::optional<OutputLock> lock;
//   TESSERA_RETURN_IF_ERROR(ClaimOutput("out.html", {.reads = {"in/"}, .is_own = IsPage}, &lock));
//   ... writes out.html ...
#ifndef TESSERA_BASE_OUTPUT_FILES_H_
#define TESSERA_BASE_OUTPUT_FILES_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tessera {

// InvalidArgument where one of `outputs` is one of `inputs`, a file below one that is a folder, or
// a folder that holds one: files are compared, not names, so that links and other spellings do not
// matter. What does not exist is no other file.
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

// Removes what killed processes left of an output: `<path>.tmp-<pid>-<n>` (base/file.h). For the
// one who may write it, while nobody else does.
Status RemoveHalfWritten(const std::string& path);

// That a folder may be replaced as a whole, and none of somebody's other files with it: there is
// none, it is empty, or it holds one of the files `markers`, which make it `kind` ("a model's
// folder"). Otherwise InvalidArgument, which names a file that would be lost.
Status CheckReplaceable(const std::string& folder, const std::vector<std::string>& markers,
                        const std::string& kind);

// What ClaimOutput has to know of an output.
struct ClaimOptions {
  std::vector<std::string> reads = {};  // files and folders that the command reads
  bool overwrite = false;               // replace what exists, whoever wrote it
  bool make_folders = false;            // make missing folders above the output
  // Whether this command wrote the file that exists. nullptr: its files cannot be recognised.
  std::function<bool(const std::string& path)> is_own = nullptr;
};

// All of the above for one file or folder that is to be written: it is no input, what exists there
// is the command's own, empty, or may be overwritten, nobody else writes it while `lock` lives, and
// nothing half-written is left. NotFound for a folder that is missing. A pipe or a device is
// written to as it is, without a lock. AlreadyExists with the way out for somebody else's file.
Status ClaimOutput(const std::string& path, const ClaimOptions& options,
                   std::optional<OutputLock>* lock);

}  // namespace tessera

#endif  // TESSERA_BASE_OUTPUT_FILES_H_
