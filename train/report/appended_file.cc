// SPDX-License-Identifier: Apache-2.0
#include "train/report/appended_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/open_file.h"

namespace tessera::train {

AppendedFile::AppendedFile(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

AppendedFile::AppendedFile(AppendedFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendedFile& AppendedFile::operator=(AppendedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

AppendedFile::~AppendedFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

StatusOr<AppendedFile> AppendedFile::Create(const std::string& path, std::string_view content) {
  TESSERA_RETURN_IF_ERROR(WriteFileAtomically(path, content));
  const int descriptor = OpenFile(path, O_WRONLY | O_APPEND);
  if (descriptor < 0) return SystemFailure(errno, path);
  return AppendedFile(path, descriptor);
}

Status AppendedFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemFailure(errno, path_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return OkStatus();
}

}  // namespace tessera::train
