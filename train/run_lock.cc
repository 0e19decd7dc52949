#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/file.h"

namespace tessera::train {
namespace {

// A file, whatever the path to it.
using FileId = std::pair<dev_t, ino_t>;

// What the lock's file says of its holder: "process 1234 on host".
std::string HolderOf(int file) {
  char text[320] = {};
  const ssize_t size = pread(file, text, sizeof(text) - 1, 0);
  std::string holder(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "another process" : holder;
}

Status WriteHolder(int file, const std::string& path) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string text = Concat("process ", getpid(), " on ", host, "\n");
  if (ftruncate(file, 0) == 0 &&
      pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    return OkStatus();
  }
  return Internal(path, ": ", std::strerror(errno));
}

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
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  struct stat info = {};
  if (file < 0 || fstat(file, &info) != 0) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) close(file);
    return Internal(path, ": ", reason);
  }
  const FileId id(info.st_dev, info.st_ino);
  std::shared_ptr<Held> held;
  bool taken = false;
  {
    const std::lock_guard<std::mutex> guard(Held::Mutex());
    if (const auto found = Held::All().find(id); found != Held::All().end()) {
      held = found->second.lock();
    }
    if (held == nullptr && flock(file, LOCK_EX | LOCK_NB) == 0) {
      held = std::make_shared<Held>(file, id);
      Held::All()[id] = held;
      taken = true;
    }
  }
  if (held != nullptr) {
    if (!taken) close(file);
    *lock = RunLock(std::move(held));
    return taken ? WriteHolder(file, path) : OkStatus();
  }
  const std::string holder = HolderOf(file);
  close(file);
  return Failure(StatusCode::kFailedPrecondition, directory, ": ", holder,
                 " is training there; wait for it, or give another --out");
}

}  // namespace tessera::train
