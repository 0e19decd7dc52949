// SPDX-License-Identifier: Apache-2.0
#include "base/open_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <string_view>
#include <system_error>

namespace tessera {

int OpenFile(const std::string& path, int flags, mode_t mode) {
  return TEMP_FAILURE_RETRY(open(path.c_str(), flags | O_CLOEXEC, mode));
}

int NamedDescriptor(const std::string& path) {
  if (path == "/dev/stdout") return 1;
  if (path == "/dev/stderr") return 2;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    int descriptor = -1;
    const char* const end = path.data() + path.size();
    const auto read = std::from_chars(path.data() + folder.size(), end, descriptor);
    if (read.ec == std::errc() && read.ptr == end && descriptor >= 0) return descriptor;
  }
  return -1;
}

std::string BehindLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::string at = path;
  for (int i = 0; i < kMostLinks; ++i) {
    char target[PATH_MAX];
    const ssize_t size = readlink(at.c_str(), target, sizeof(target));
    if (size <= 0) return at;  // no link
    const std::string_view to(target, static_cast<size_t>(size));
    // A relative link is meant from its own folder.
    at = to.front() == '/' ? std::string(to) : at.substr(0, at.rfind('/') + 1).append(to);
  }
  return path;
}

}  // namespace tessera
