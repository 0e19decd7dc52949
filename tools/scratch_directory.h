// SPDX-License-Identifier: Apache-2.0
// A directory of a command's own, gone with it, also where SIGINT, SIGTERM or SIGHUP ends the
// command.
#ifndef TESSERA_TOOLS_SCRATCH_DIRECTORY_H_
#define TESSERA_TOOLS_SCRATCH_DIRECTORY_H_

#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/status.h"

namespace tessera::tools {

class ScratchDirectory {
 public:
  // A new one under the directory for temporary files, which nobody else can foresee or enter:
  // other users may write there. Throws Error where there can be none.
  ScratchDirectory() {
    const char* const given = std::getenv("TMPDIR");
    const std::string base = given != nullptr && *given != '\0' ? given : "/tmp";
    path_ = JoinPath(base, "tessera-XXXXXX");
    TESSERA_CHECK(mkdtemp(path_.data()) != nullptr, "a folder for temporary files", base, ": ",
                  std::strerror(errno));
    RemoveOnSignal(path_);
  }
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
