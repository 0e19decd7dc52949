// SPDX-License-Identifier: Apache-2.0
// A directory of a command's own, gone with it.
#ifndef TESSERA_TOOLS_SCRATCH_DIRECTORY_H_
#define TESSERA_TOOLS_SCRATCH_DIRECTORY_H_

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace tessera::tools {

class ScratchDirectory {
 public:
  // Under the directory for temporary files.
  ScratchDirectory() {
    const char* base = std::getenv("TMPDIR");
    path_ =
        JoinPath(base != nullptr && *base != '\0' ? base : "/tmp", Concat("tessera-", getpid()));
  }
  // At a path, for what is large.
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  ~ScratchDirectory() { RemoveAll(path_).IgnoreError(); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_SCRATCH_DIRECTORY_H_
