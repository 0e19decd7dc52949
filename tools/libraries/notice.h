// SPDX-License-Identifier: Apache-2.0
// The list of libraries in NOTICE.
#ifndef TESSERA_TOOLS_LIBRARIES_NOTICE_H_
#define TESSERA_TOOLS_LIBRARIES_NOTICE_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera::tools {

// `notice` with its list (the lines that begin with two blanks) as the table has it. Fails where
// there is no such list.
StatusOr<std::string> WithLibraryList(std::string_view notice);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LIBRARIES_NOTICE_H_
