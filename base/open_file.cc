// SPDX-License-Identifier: Apache-2.0
#include "base/open_file.h"

#include <fcntl.h>

#include <cerrno>

namespace tessera {

int OpenFile(const std::string& path, int flags, mode_t mode) {
  int file;
  do {
    file = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (file < 0 && errno == EINTR);
  return file;
}

}  // namespace tessera
