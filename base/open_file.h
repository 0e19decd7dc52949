// SPDX-License-Identifier: Apache-2.0
// open(2) for those who need a descriptor: files that are locked, appended to or read in places.
#ifndef TESSERA_BASE_OPEN_FILE_H_
#define TESSERA_BASE_OPEN_FILE_H_

#include <fcntl.h>
#include <sys/types.h>

#include <string>

namespace tessera {

// As open(2) with O_CLOEXEC, again where a signal interrupted it: a descriptor, or -1 and errno.
int OpenFile(const std::string& path, int flags, mode_t mode = 0);

}  // namespace tessera

#endif  // TESSERA_BASE_OPEN_FILE_H_
