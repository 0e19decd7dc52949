// Makes the tables of a page anew: bazel run //docs:write_key_tables (of docs/cli.md), or with the
// page's path.
#include <cstdio>
#include <cstdlib>

#include "core/file.h"
#include "docs/key_tables.h"

int main(int argc, char** argv) {
  using namespace tessera;
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::string path =
      argc > 1 ? argv[1] : JoinPath(workspace == nullptr ? "" : workspace, "docs/cli.md");
  const Status status = [&]() -> Status {
    TESSERA_ASSIGN_OR_RETURN(const std::string page, ReadFile(path));
    TESSERA_ASSIGN_OR_RETURN(const std::string text, docs::WithTables(page));
    return WriteFileAtomically(path, text);
  }();
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", Message(status).c_str());
  return status.ok() ? 0 : 1;
}
