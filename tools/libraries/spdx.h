// SPDX-License-Identifier: Apache-2.0
// A bill of materials in the form of SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3), as JSON:
// Tessera and the libraries that it is made of.
//
//   SpdxDocument("0.8.0", 1'700'000'000, ListLibraries()).dump(2)
//
// The same arguments give the same bytes.
#ifndef TESSERA_TOOLS_LIBRARIES_SPDX_H_
#define TESSERA_TOOLS_LIBRARIES_SPDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "nlohmann/json_fwd.hpp"
#include "tools/libraries/loaded_libraries.h"

namespace tessera::tools {

// `created` is in seconds since 1970. Tessera depends on what it is linked with or compiled from;
// what is loaded when needed is an optional dependency.
nlohmann::ordered_json SpdxDocument(const std::string& version, int64_t created,
                                    const std::vector<ListedLibrary>& libraries);

// The time that SOURCE_DATE_EPOCH says (https://reproducible-builds.org/specs/source-date-epoch),
// given as its value; `now` where it is nullptr.
StatusOr<int64_t> CreationTime(const char* source_date_epoch, int64_t now);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LIBRARIES_SPDX_H_
