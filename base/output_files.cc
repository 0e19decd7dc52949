// SPDX-License-Identifier: Apache-2.0
#include "base/output_files.h"

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

#include "base/file.h"
#include "base/open_file.h"

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

// The folder of a path, and its name there.
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {path.substr(0, slash + 1), path.substr(slash + 1)};
}

// What is neither a file nor a folder: a pipe, a device, what the shell opened. Its bytes are
// nobody's to lose.
bool IsStream(const std::string& path) {
  if (NamedDescriptor(path) >= 0) return true;
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

bool IsEmptyFile(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

}  // namespace

Status RefuseInputs(const std::vector<std::string>& outputs,
                    const std::vector<std::string>& inputs) {
  std::map<FileId, std::string> written;
  for (const std::string& output : outputs) {
    const std::optional<FileId> id = IdOf(output);
    if (id && !IsStream(output)) written.emplace(*id, output);
  }
  if (written.empty()) return OkStatus();
  const auto check = [&](const std::string& path, const std::string& input) -> Status {
    const std::optional<FileId> id = IdOf(path);
    const auto found = id ? written.find(*id) : written.end();
    if (found == written.end()) return OkStatus();
    return InvalidArgument(found->second, ": would replace the input ", input,
                           "; give another output");
  };
  for (const std::string& input : inputs) {
    std::error_code error;
    // The folders that it lies in would go with it.
    const fs::path whole = fs::canonical(input, error);
    if (error) continue;
    for (fs::path at = whole; at != at.root_path(); at = at.parent_path()) {
      TESSERA_RETURN_IF_ERROR(check(at.string(), input));
    }
    if (!fs::is_directory(input, error)) continue;
    for (fs::recursive_directory_iterator at(input, error), end; !error && at != end;
         at.increment(error)) {
      if (!at->is_directory(error)) {
        TESSERA_RETURN_IF_ERROR(check(at->path().string(), at->path().string()));
      }
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
  if (TEMP_FAILURE_RETRY(ftruncate(file, 0)) != 0) return SystemFailure(errno, path);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written =
        pwrite(file, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemFailure(written < 0 ? errno : ENOSPC, path);
    done += static_cast<size_t>(written);
  }
  return OkStatus();
}

Status OutputLock::Take(const std::string& path, std::optional<OutputLock>* lock) {
  const std::string name = path + ".lock";
  for (;;) {
    const int file = OpenFile(name, O_RDWR | O_CREAT, 0644);
    if (file < 0) return SystemFailure(errno, name, ": cannot write");
    OutputLock mine(name, -1);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        const int error = errno;
        close(file);
        return SystemFailure(error, name, ": cannot lock");
      }
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

Status RemoveHalfWritten(const std::string& path) {
  const auto [folder, name] = SplitPath(path);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  const std::string begin = name + ".tmp-";
  for (const std::string& other : names) {
    const bool numbers = other.find_first_not_of("0123456789-", begin.size()) == std::string::npos;
    if (other.starts_with(begin) && numbers) {
      TESSERA_RETURN_IF_ERROR(RemoveAll(JoinPath(folder, other)));
    }
  }
  return OkStatus();
}

Status ClaimOutput(const std::string& given, const ClaimOptions& options,
                   std::optional<OutputLock>* lock) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (IsStream(path)) return OkStatus();
  const bool is_own = options.is_own != nullptr && PathExists(path) && options.is_own(path);
  // One of the command's own in a folder that it reads (a run's report, beside the run) is no
  // input.
  std::vector<std::string> reads = options.reads;
  if (is_own) std::erase_if(reads, [](const std::string& read) { return IsDirectory(read); });
  TESSERA_RETURN_IF_ERROR(RefuseInputs({path}, reads));
  // A command that knows its own files writes no folder.
  if (options.is_own != nullptr && IsDirectory(path)) return SystemFailure(EISDIR, path);
  const std::string destination = BehindLinks(path);
  const auto [folder, name] = SplitPath(destination);
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0 && errno == ENOENT) {
    if (!options.make_folders) return NotFound(path, ": there is no folder ", folder);
    TESSERA_RETURN_IF_ERROR(MakeDirectories(folder));
  }
  TESSERA_RETURN_IF_ERROR(OutputLock::Take(destination, lock));
  if (!is_own && !options.overwrite && PathExists(path) && !IsEmptyFile(path)) {
    lock->reset();
    return Failure(StatusCode::kAlreadyExists, path,
                   ": exists, and this command did not write it; give --overwrite to replace it, ",
                   "or another output");
  }
  return RemoveHalfWritten(destination);
}

Status CheckReplaceable(const std::string& folder, const std::vector<std::string>& markers,
                        const std::string& kind) {
  if (!PathExists(folder)) return OkStatus();
  if (!IsDirectory(folder)) return InvalidArgument(folder, ": is a file, no folder");
  for (const std::string& marker : markers) {
    if (PathExists(JoinPath(folder, marker))) return OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  if (names.empty()) return OkStatus();
  return InvalidArgument(folder, ": has no ", markers[0], ", so it is not ", kind, ", and '",
                         names[0],
                         "' in it would be lost; give another folder, or remove this one yourself");
}

}  // namespace tessera
