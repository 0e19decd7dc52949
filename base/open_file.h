// SPDX-License-Identifier: Apache-2.0
// A file's descriptor, for files that are locked, appended to or read in places.
//
//   const int file = OpenFile(path, O_RDWR | O_CREAT, 0644);
//   if (file < 0) return SystemFailure(errno, path, ": cannot write");
#ifndef TESSERA_BASE_OPEN_FILE_H_
#define TESSERA_BASE_OPEN_FILE_H_

#include <sys/types.h>

#include <string>

namespace tessera {

// As open(2) with O_CLOEXEC, again where a signal interrupted it: a descriptor, or -1 and errno.
int OpenFile(const std::string& path, int flags, mode_t mode = 0);

}  // namespace tessera

#endif  // TESSERA_BASE_OPEN_FILE_H_
