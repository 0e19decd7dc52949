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

// The open descriptor that a path stands for: 1 of /dev/stdout, 3 of /dev/fd/3; -1: none. Opening
// such a path anew would begin at the start of a file that the shell appends to.
int NamedDescriptor(const std::string& path);

// What the symbolic links at the end of a path lead to, whether or not it exists: a link stays a
// link where an output is renamed to its destination. A path that is no link is returned as it is.
std::string BehindLinks(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_BASE_OPEN_FILE_H_
