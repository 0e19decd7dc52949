// SPDX-License-Identifier: Apache-2.0
// A directory of a command's own, gone with it, also where SIGINT, SIGTERM or SIGHUP ends the
// command.
#ifndef TESSERA_TOOLS_SCRATCH_DIRECTORY_H_
#define TESSERA_TOOLS_SCRATCH_DIRECTORY_H_

#include <memory>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace tessera::tools {

class ScratchDirectory {
 public:
  // A new one under the directory for temporary files, which nobody else can foresee or enter:
  // other users may write there. A failure names the environment variable TMPDIR.
  static StatusOr<std::unique_ptr<const ScratchDirectory>> Create();
  // At a path, for what is large.
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  ~ScratchDirectory() {
    RemoveAll(path_).IgnoreError();
    ForgetOnSignal(path_);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  // Of one directory at a time; signals that somebody handles or ignores are left alone.
  static void RemoveOnSignal(const std::string& path);
  static void ForgetOnSignal(const std::string& path);

  std::string path_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_SCRATCH_DIRECTORY_H_
