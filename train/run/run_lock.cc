// SPDX-License-Identifier: Apache-2.0
#include "train/run/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/file.h"
#include "base/open_file.h"
#include "base/output_files.h"

namespace tessera::train {
namespace {

// A file, whatever the path to it.
using FileId = std::pair<dev_t, ino_t>;

}  // namespace

class RunLock::Held {
 public:
  Held(int file, FileId id) : file_(file), id_(id) {}
  ~Held() {
    const std::lock_guard<std::mutex> guard(Mutex());
    All().erase(id_);
    close(file_);  // which gives the lock back
  }

  static std::mutex& Mutex() {
    static auto* mutex = new std::mutex;
    return *mutex;
  }
  // Of this process.
  static std::map<FileId, std::weak_ptr<Held>>& All() {
    static auto* all = new std::map<FileId, std::weak_ptr<Held>>;
    return *all;
  }

 private:
  const int file_;
  const FileId id_;
};

Status RunLock::Take(const std::string& directory, std::optional<RunLock>* lock) {
  TESSERA_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = JoinPath(directory, "run.lock");
  const int file = OpenFile(path, O_RDWR | O_CREAT, 0644);
  struct stat info = {};
  if (file < 0 || fstat(file, &info) != 0) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) close(file);
    return Internal(path, ": ", reason);
  }
  const FileId id(info.st_dev, info.st_ino);
  std::shared_ptr<Held> held;
  bool taken = false;
  int error = EWOULDBLOCK;
  {
    const std::lock_guard<std::mutex> guard(Held::Mutex());
    if (const auto found = Held::All().find(id); found != Held::All().end()) {
      held = found->second.lock();
    }
    if (held == nullptr && flock(file, LOCK_EX | LOCK_NB) == 0) {
      held = std::make_shared<Held>(file, id);
      Held::All()[id] = held;
      taken = true;
    } else if (held == nullptr) {
      error = errno;
    }
  }
  if (held != nullptr) {
    if (!taken) close(file);
    *lock = RunLock(std::move(held));
    return taken ? WriteLockHolder(file, path) : OkStatus();
  }
  const std::string holder = LockHolderOf(file);
  close(file);
  if (error != EWOULDBLOCK) return SystemFailure(error, path, ": cannot lock");
  return Failure(StatusCode::kFailedPrecondition, directory, ": ", holder,
                 " is training there; wait for it, or give another --out");
}

// Lines of the table are "1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF": the process, and the
// file by its device and inode. Some file systems number devices otherwise there than for stat, so
// that the process that the file names is in for the device.
bool RunLock::IsHeld(const std::string& directory) {
  struct stat info = {};
  const std::string path = JoinPath(directory, "run.lock");
  const StatusOr<std::string> holder = ReadFile(path);
  const StatusOr<std::string> locks = ReadFile("/proc/locks");
  if (!holder.ok() || !locks.ok() || stat(path.c_str(), &info) != 0) return false;
  std::istringstream words_of_holder(*holder);
  std::string word;
  int64_t process = 0;
  if (!(words_of_holder >> word >> process) || word != "process") return false;
  std::istringstream lines(*locks);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, kind, mode, access, file;
    int64_t owner = 0;
    words >> number >> kind >> mode >> access >> owner >> file;
    const size_t colon = file.rfind(':');
    if (kind != "FLOCK" || owner != process || colon == std::string::npos) continue;
    if (file.substr(colon + 1) == std::to_string(info.st_ino)) return true;
  }
  return false;
}

}  // namespace tessera::train
