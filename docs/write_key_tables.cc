// SPDX-License-Identifier: Apache-2.0
// Makes the tables of docs/cli.md and docs/migration.md anew: bazel run //docs:write_key_tables, or
// with the folder of the pages.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/file.h"
#include "docs/key_tables.h"

int main(int argc, char** argv) {
  using namespace tessera;
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  const std::string folder =
      argc > 1 ? argv[1] : JoinPath(workspace == nullptr ? "" : workspace, "docs");
  const auto write = [&](const char* name, StatusOr<std::string> (*with)(const std::string&)) {
    const std::string path = JoinPath(folder, name);
    TESSERA_ASSIGN_OR_RETURN(const std::string page, ReadFile(path));
    TESSERA_ASSIGN_OR_RETURN(const std::string text, with(page));
    return WriteFileAtomically(path, text);
  };
  Status status = write("cli.md", docs::WithTables);
  status.Update(write("migration.md", docs::WithMigrationTables));
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", Message(status).c_str());
  return status.ok() ? 0 : 1;
}
