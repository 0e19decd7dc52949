// SPDX-License-Identifier: Apache-2.0
#include "core/output_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A file, whatever the path to it.
using FileId = std::pair<dev_t, ino_t>;

std::optional<FileId> IdOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileId(info.st_dev, info.st_ino);
}

}  // namespace

Status RefuseInputs(const std::vector<std::string>& outputs,
                    const std::vector<std::string>& inputs) {
  std::map<FileId, std::string> written;
  for (const std::string& output : outputs) {
    struct stat info = {};
    if (stat(output.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      written.emplace(FileId(info.st_dev, info.st_ino), output);
    }
  }
  if (written.empty()) return OkStatus();
  const auto check = [&](const std::string& input) -> Status {
    const std::optional<FileId> id = IdOf(input);
    const auto found = id ? written.find(*id) : written.end();
    if (found == written.end()) return OkStatus();
    return InvalidArgument(found->second, ": would replace the input ", input,
                           "; give another output");
  };
  for (const std::string& input : inputs) {
    TESSERA_RETURN_IF_ERROR(check(input));
    std::error_code error;
    if (!fs::is_directory(input, error)) continue;
    for (fs::recursive_directory_iterator at(input, error), end; !error && at != end;
         at.increment(error)) {
      TESSERA_RETURN_IF_ERROR(check(at->path().string()));
    }
  }
  return OkStatus();
}

std::string LockHolderOf(int file) {
  char text[320] = {};
  const ssize_t size = pread(file, text, sizeof(text) - 1, 0);
  std::string holder(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "another process" : holder;
}

Status WriteLockHolder(int file, const std::string& path) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string text = Concat("process ", getpid(), " on ", host, "\n");
  if (ftruncate(file, 0) == 0 &&
      pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    return OkStatus();
  }
  return SystemFailure(errno, path);
}

Status OutputLock::Take(const std::string& path, std::optional<OutputLock>* lock) {
  const std::string name = path + ".lock";
  for (;;) {
    const int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return SystemFailure(errno, name, ": cannot write");
    OutputLock mine(name, -1);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      const std::string holder = LockHolderOf(file);
      close(file);
      return Failure(StatusCode::kFailedPrecondition, path, ": ", holder,
                     " is writing it; wait for that process, or give another output");
    }
    // The one before may have removed the file between the two calls.
    struct stat info = {};
    if (fstat(file, &info) != 0 || IdOf(name) != FileId(info.st_dev, info.st_ino)) {
      close(file);
      continue;
    }
    mine.file_ = file;
    TESSERA_RETURN_IF_ERROR(WriteLockHolder(file, name));
    lock->emplace(std::move(mine));
    return OkStatus();
  }
}

OutputLock::~OutputLock() {
  if (file_ < 0) return;
  unlink(path_.c_str());
  close(file_);
}

}  // namespace tessera
