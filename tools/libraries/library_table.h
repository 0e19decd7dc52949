// SPDX-License-Identifier: Apache-2.0
// The libraries of others that Tessera is made of: the one list behind `tessera --version
// --verbose` (version_report.h), the SBOM of the packages (spdx.h) and the list in NOTICE
// (notice.h).
//
//   for (const Library& library : LibraryTable()) Print(library.name, library.version);
//
// A new library is a target in third_party/ and an entry here; libraries_test compares the two.
#ifndef TESSERA_TOOLS_LIBRARIES_LIBRARY_TABLE_H_
#define TESSERA_TOOLS_LIBRARIES_LIBRARY_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

namespace tessera::tools {

struct Library {
  enum class Kind {
    kShared,   // the program is linked with its shared libraries
    kSources,  // compiled into the program: headers, sources in third_party/, archives
    kLoaded,   // loaded when a command needs it; the program starts without it
  };

  std::string_view name;
  std::string_view licence;  // an SPDX expression
  std::string_view home;     // where it is from
  std::string_view use;      // of Tessera's parts
  Kind kind = Kind::kShared;
  // What it was compiled with; empty where nothing says it.
  std::string version = {};
  // How the file names of its shared libraries begin.
  std::vector<std::string_view> files = {};
  // Of its function `const char* f(void)` that says the version of the library that is loaded.
  const char* version_function = nullptr;
  // In third_party/BUILD.bazel; empty where it is not named there: a library of a library, of the
  // compiler, of the CUDA toolkit.
  std::string_view target = {};
  bool with_cuda = false;  // only in programs built with CUDA
};

// By name, regardless of letter case.
const std::vector<Library>& LibraryTable();

// Whether this program has the library.
bool IsBuiltIn(const Library& library);

// What a `LicenseRef-...` of the table stands for: licences without an identifier of SPDX's.
struct OwnLicence {
  std::string_view id;
  std::string_view name;
  std::string_view text;
};
const std::vector<OwnLicence>& OwnLicences();

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LIBRARIES_LIBRARY_TABLE_H_
