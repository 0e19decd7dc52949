// SPDX-License-Identifier: Apache-2.0
// Makes the list of libraries in NOTICE anew: bazel run //tools/libraries:write_notice, or with the
// file's path.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/file.h"
#include "tools/libraries/notice.h"

int main(int argc, char** argv) {
  using namespace tessera;
  const char* const workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::string path =
      argc > 1 ? argv[1] : JoinPath(workspace == nullptr ? "" : workspace, "NOTICE");
  const auto write = [&]() -> Status {
    TESSERA_ASSIGN_OR_RETURN(const std::string notice, ReadFile(path));
    TESSERA_ASSIGN_OR_RETURN(const std::string text, tools::WithLibraryList(notice));
    return WriteFileAtomically(path, text);
  };
  const Status status = write();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", Message(status).c_str());
  return status.ok() ? 0 : 1;
}
