// SPDX-License-Identifier: Apache-2.0
#include "base/open_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace tessera {

int OpenFile(const std::string& path, int flags, mode_t mode) {
  return TEMP_FAILURE_RETRY(open(path.c_str(), flags | O_CLOEXEC, mode));
}

}  // namespace tessera
