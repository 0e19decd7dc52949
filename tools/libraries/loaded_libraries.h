// SPDX-License-Identifier: Apache-2.0
// The libraries of this program: those of the table that it is built with, each with the shared
// libraries of it that this process has loaded, and the shared libraries that the table lacks.
//
//   for (const ListedLibrary& listed : ListLibraries()) Print(listed.name, listed.files);
#ifndef TESSERA_TOOLS_LIBRARIES_LOADED_LIBRARIES_H_
#define TESSERA_TOOLS_LIBRARIES_LOADED_LIBRARIES_H_

#include <string>
#include <string_view>
#include <vector>

#include "tools/libraries/library_table.h"

namespace tessera::tools {

// The file names of the shared libraries that this process has loaded, in order: "libz.so.1". The
// kernel's own (linux-vdso.so.1) is none.
std::vector<std::string> LoadedFiles();

struct ListedLibrary {
  std::string name = {};
  std::string version = {};             // of the loaded library where it says one; may be empty
  std::vector<std::string> files = {};  // loaded ones
  const Library* library = nullptr;     // nullptr: not in the table
};

// In the table's order, and behind that what the table lacks. `files` are LoadedFiles() of a
// process with such libraries.
std::vector<ListedLibrary> ListLibraries(const std::vector<std::string>& files);
inline std::vector<ListedLibrary> ListLibraries() { return ListLibraries(LoadedFiles()); }

// "libicuuc.so.72.1": "72.1"; empty where the name has no number.
std::string VersionInFileName(std::string_view name);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LIBRARIES_LOADED_LIBRARIES_H_
