// SPDX-License-Identifier: Apache-2.0
// `tessera --version --verbose`: what this program is and what it is made of, as text or JSON.
#ifndef TESSERA_TOOLS_LIBRARIES_VERSION_REPORT_H_
#define TESSERA_TOOLS_LIBRARIES_VERSION_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tools/libraries/loaded_libraries.h"

namespace tessera::tools {

// What the program says of itself.
struct BuildFacts {
  std::string version;          // "0.8.0"
  std::string compiler;         // "g++ 12.2.0"
  std::string build;            // "optimised"
  std::string built_for;        // "CPU and CUDA"
  std::string instruction_set;  // in use: "avx2"
  std::string best_set;         // that the machine has
};

// "shared", "built in" or "loaded when needed".
std::string_view KindName(const ListedLibrary& listed);

// Lines of `name: value`, and a table of a line for each library.
std::string VersionText(const BuildFacts& facts, const std::vector<ListedLibrary>& libraries);

// {"version": "0.8.0", ..., "libraries": [{"name", "version", "licence", "kind", "home", "use",
// "files"}]}; what is not known is null.
nlohmann::ordered_json VersionJson(const BuildFacts& facts,
                                   const std::vector<ListedLibrary>& libraries);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LIBRARIES_VERSION_REPORT_H_
