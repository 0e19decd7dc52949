// SPDX-License-Identifier: Apache-2.0
// The keys that clients of a server give.
#ifndef TESSERA_TOOLS_API_KEYS_H_
#define TESSERA_TOOLS_API_KEYS_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::tools {

// The lines of a file; each is a key, without the blanks around it. A byte-order mark is dropped
// and empty lines are skipped. InvalidArgument for a file without a key, and for a key that no
// header can hold. None for no path.
StatusOr<std::vector<std::string>> ReadKeys(const std::string& path);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_API_KEYS_H_
