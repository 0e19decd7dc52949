// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD: the Nth of a program's system calls fails, is cut short, waits, or is
// its last.
//
//   LD_PRELOAD=libshim.so TESSERA_FAULT_UNDER=/data/run TESSERA_FAULT=write,sync TESSERA_FAULT_AT=7
//   TESSERA_FAULT_HOW=ENOSPC tessera train ...
//
// Variables:
//   TESSERA_FAULT          the kinds of calls that count, separated by commas (kKinds below)
//   TESSERA_FAULT_AT       which one fails, from 1; "7+": this one and all behind it; none: all are
//                          only counted
//   TESSERA_FAULT_HOW      ENOSPC (or another name of kErrors): the call fails so
//                          short: half of the bytes; "end": no bytes, as at the end
//                          tear: writes half of the bytes, then the process is killed
//                          kill, stop: SIGKILL or SIGSTOP before the call
//                          delay:MS: waits, then calls
//                          step:SECONDS: of kind `clock`, from here on the wall clock is elsewhere
//   TESSERA_FAULT_UNDER    calls for files count where their path lies below this folder, so that
//                          the numbers are small and the same in every run
//   TESSERA_FAULT_PROGRAM  counts in programs of that name alone ("tessera", but not mpirun)
//   TESSERA_FAULT_RANK     counts in that rank alone (OMPI_COMM_WORLD_RANK or RANK); "none": in a
//                          process that is no rank, the launcher
//   TESSERA_FAULT_IF       "NAME TEXT": counts where the variable NAME has TEXT in it
//   TESSERA_FAULT_ONCE     a file that the first process to meet the fault makes; others meet none
//   TESSERA_FAULT_ABOVE    allocations of fewer bytes do not count
//   TESSERA_FAULT_LOG      a file that gets a line for each call that counts, "PID N KIND PATH",
//                          with "!" behind it where the fault was; of memory for the fault alone,
//                          and a line with the number of all when the program ends
//
// Why this level: the programs open, read and write files by libc's functions (base/file.cc) and
// sockets by those that Boost calls; both go through the dynamic linker's table, and so do the
// calls of libstdc++. What libc does within itself does not: fopen's own open and the writes of
// stdio. The files that matter are not written through these (`strace -f` of a run shows no other
// call that writes below the run's folder). Messages of stdio on standard output do not count.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#undef _FORTIFY_SOURCE  // its headers have an `open` of their own, which cannot be defined
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <new>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

enum Kind {
  kOpen,      // to read
  kCreate,    // to write
  kRead,      // also pread and readv
  kWrite,     // also pwrite, writev and posix_fallocate
  kSync,      // fsync and fdatasync
  kRename,    // also renameat2 and link
  kUnlink,    // also rmdir
  kMkdir,     //
  kTruncate,  //
  kClose,     // of files below the folder
  kMap,       // mmap of a file
  kStat,      // stat, lstat, fstat
  kList,      // opendir and readdir
  kLock,      // flock
  kConnect,   // and below: of sockets of the internet alone
  kAccept,    //
  kReceive,   //
  kSend,      //
  kBind,      //
  kClock,     // a reading of the wall clock
  kNew,       // operator new
  kMalloc,    // malloc and its kin, called from elsewhere than operator new
  kKinds_
};

constexpr const char* kKinds[] = {"open",   "create", "read",     "write",  "sync",    "rename",
                                  "unlink", "mkdir",  "truncate", "close",  "map",     "stat",
                                  "list",   "lock",   "connect",  "accept", "receive", "send",
                                  "bind",   "clock",  "new",      "malloc"};
static_assert(sizeof(kKinds) / sizeof(kKinds[0]) == kKinds_);

struct NamedError {
  const char* name;
  int value;
};
constexpr NamedError kErrors[] = {{"ENOSPC", ENOSPC},
                                  {"EDQUOT", EDQUOT},
                                  {"EIO", EIO},
                                  {"EROFS", EROFS},
                                  {"ENOENT", ENOENT},
                                  {"EACCES", EACCES},
                                  {"EINTR", EINTR},
                                  {"EMFILE", EMFILE},
                                  {"ENOMEM", ENOMEM},
                                  {"ENOLCK", ENOLCK},
                                  {"ESTALE", ESTALE},
                                  {"EFBIG", EFBIG},
                                  {"ECONNREFUSED", ECONNREFUSED},
                                  {"ECONNRESET", ECONNRESET},
                                  {"ECONNABORTED", ECONNABORTED},
                                  {"ETIMEDOUT", ETIMEDOUT},
                                  {"EHOSTUNREACH", EHOSTUNREACH},
                                  {"EADDRINUSE", EADDRINUSE},
                                  {"EPIPE", EPIPE}};

enum How { kNothing, kError, kShort, kEnd, kTear, kKill, kStop, kDelay, kStep };

// What the variables say, read once. No call in here may take memory: it may itself be one that
// counts.
struct Plan {
  bool counts[kKinds_] = {};
  uint64_t at = 0;  // 0: never
  bool onwards = false;
  How how = kNothing;
  int error = 0;
  long amount = 0;  // of a delay or a step
  char under[PATH_MAX] = {};
  size_t under_size = 0;
  size_t above = 0;
  const char* log = nullptr;
  const char* once = nullptr;
};

Plan plan;
std::atomic<int> state{0};  // 0: not read, 1: being read, 2: read and of use, 3: not of use here
std::atomic<uint64_t> counter{0};
std::atomic<long> clock_step{0};

[[noreturn]] void Refuse(const char* what) {
  const char* const parts[] = {"error: shim: wrong ", what, "\n"};
  for (const char* part : parts) syscall(SYS_write, 2, part, strlen(part));
  _exit(99);
}

// Whether `list` has `name` between its commas.
bool Has(const char* list, const char* name) {
  const size_t size = strlen(name);
  for (const char* at = list; (at = strstr(at, name)) != nullptr; at += size) {
    if ((at == list || at[-1] == ',') && (at[size] == ',' || at[size] == '\0')) return true;
  }
  return false;
}

void ReadHow(const char* text) {
  for (const NamedError& error : kErrors) {
    if (strcmp(text, error.name) != 0) continue;
    plan.how = kError;
    plan.error = error.value;
    return;
  }
  struct {
    const char* name;
    How how;
  } const hows[] = {
      {"short", kShort}, {"end", kEnd}, {"tear", kTear}, {"kill", kKill}, {"stop", kStop}};
  for (const auto& how : hows) {
    if (strcmp(text, how.name) == 0) plan.how = how.how;
  }
  if (strncmp(text, "delay:", 6) == 0) plan.how = kDelay;
  if (strncmp(text, "step:", 5) == 0) plan.how = kStep;
  if (plan.how == kNothing) Refuse("TESSERA_FAULT_HOW");
  if (const char* colon = strchr(text, ':')) plan.amount = strtol(colon + 1, nullptr, 10);
}

bool IsThisProcess() {
  if (const char* program = getenv("TESSERA_FAULT_PROGRAM")) {
    char path[PATH_MAX];
    const long size = syscall(SYS_readlink, "/proc/self/exe", path, sizeof(path) - 1);
    path[std::max(size, 0L)] = '\0';
    const char* slash = strrchr(path, '/');
    if (slash == nullptr || strcmp(slash + 1, program) != 0) return false;
  }
  if (const char* condition = getenv("TESSERA_FAULT_IF")) {
    const char* space = strchr(condition, ' ');
    if (space == nullptr) Refuse("TESSERA_FAULT_IF");
    char name[100] = {};
    memcpy(name, condition, std::min<size_t>(static_cast<size_t>(space - condition), 99));
    const char* value = getenv(name);
    if (value == nullptr || strstr(value, space + 1) == nullptr) return false;
  }
  const char* wanted = getenv("TESSERA_FAULT_RANK");
  if (wanted == nullptr) return true;
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = getenv("RANK");
  return strcmp(wanted, rank == nullptr ? "none" : rank) == 0;
}

bool ReadPlan() {
  const char* kinds = getenv("TESSERA_FAULT");
  if (kinds == nullptr || !IsThisProcess()) return false;
  for (int i = 0; i < kKinds_; ++i) plan.counts[i] = Has(kinds, kKinds[i]);
  if (const char* at = getenv("TESSERA_FAULT_AT")) {
    char* end = nullptr;
    plan.at = strtoull(at, &end, 10);
    plan.onwards = *end == '+';
    const char* how = getenv("TESSERA_FAULT_HOW");
    ReadHow(how == nullptr ? "" : how);
  }
  if (const char* under = getenv("TESSERA_FAULT_UNDER")) {
    plan.under_size = strlen(under);
    if (plan.under_size >= sizeof(plan.under)) Refuse("TESSERA_FAULT_UNDER");
    memcpy(plan.under, under, plan.under_size + 1);
  }
  if (const char* above = getenv("TESSERA_FAULT_ABOVE")) plan.above = strtoull(above, nullptr, 10);
  plan.log = getenv("TESSERA_FAULT_LOG");
  plan.once = getenv("TESSERA_FAULT_ONCE");
  return true;
}

// Calls of other threads, and of libc while the plan is read, do not count.
bool Counts(Kind kind) {
  int now = state.load(std::memory_order_acquire);
  if (now == 0 && environ != nullptr && state.compare_exchange_strong(now, 1)) {
    now = ReadPlan() ? 2 : 3;
    state.store(now, std::memory_order_release);
  }
  return now == 2 && plan.counts[kind];
}

void Log(Kind kind, uint64_t number, const char* path, bool fault) {
  if (plan.log == nullptr) return;
  char line[PATH_MAX + 100];
  const int size =
      snprintf(line, sizeof(line), "%d %lu %s %s%s\n", static_cast<int>(getpid()),
               static_cast<unsigned long>(number), kKinds[kind], path, fault ? " !" : "");
  const long file =
      syscall(SYS_openat, AT_FDCWD, plan.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  syscall(SYS_write, file, line, std::min<size_t>(static_cast<size_t>(size), sizeof(line) - 1));
  syscall(SYS_close, file);
}

bool Below(const char* path) {
  return strncmp(path, plan.under, plan.under_size) == 0 &&
         (path[plan.under_size] == '/' || path[plan.under_size] == '\0');
}

// "" where it does not count.
struct Place {
  char path[PATH_MAX];
};

bool PlaceOf(int descriptor, Place* place) {
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const long size = syscall(SYS_readlink, link, place->path, sizeof(place->path) - 1);
  if (size <= 0 || place->path[0] != '/') return false;
  place->path[size] = '\0';
  return Below(place->path);
}

bool PlaceOf(int folder, const char* name, Place* place) {
  if (name == nullptr) return false;
  size_t size = 0;
  if (name[0] != '/') {
    if (folder == AT_FDCWD) {
      if (syscall(SYS_getcwd, place->path, sizeof(place->path)) <= 0) return false;
    } else {
      PlaceOf(folder, place);
    }
    size = strlen(place->path);
    if (size + 2 >= sizeof(place->path)) return false;
    place->path[size++] = '/';
  }
  if (size + strlen(name) >= sizeof(place->path)) return false;
  strcpy(place->path + size, name);
  return Below(place->path);
}

// Whether no other process has met the fault before.
bool IsFirst() {
  if (plan.once == nullptr) return true;
  const long file =
      syscall(SYS_openat, AT_FDCWD, plan.once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file >= 0) syscall(SYS_close, file);
  return file >= 0;
}

// One call that counts: what is to become of it. A process that is to end, stop or wait has done so
// before this returns.
How Meet(Kind kind, const char* path) {
  const uint64_t number = counter.fetch_add(1) + 1;
  const bool fault =
      plan.at != 0 && (number == plan.at || (plan.onwards && number > plan.at)) && IsFirst();
  const bool memory = kind == kNew || kind == kMalloc;
  if (!memory || fault) Log(kind, number, path, fault);
  if (!fault) return kNothing;
  const int before = errno;
  if (plan.how == kKill) syscall(SYS_kill, getpid(), SIGKILL);
  if (plan.how == kStop) syscall(SYS_kill, getpid(), SIGSTOP);
  if (plan.how == kDelay) {
    timespec time = {plan.amount / 1000, plan.amount % 1000 * 1000000};
    syscall(SYS_nanosleep, &time, nullptr);
  }
  if (plan.how == kStep) clock_step.store(plan.amount);
  errno = plan.how == kError ? plan.error : before;
  return plan.how;
}

How MeetFile(Kind kind, int folder, const char* name) {
  if (!Counts(kind)) return kNothing;
  const int before = errno;
  Place place;
  if (!PlaceOf(folder, name, &place)) {
    errno = before;
    return kNothing;
  }
  errno = before;
  return Meet(kind, place.path);
}

How MeetFile(Kind kind, int descriptor) {
  if (!Counts(kind)) return kNothing;
  const int before = errno;
  Place place;
  const bool counts = PlaceOf(descriptor, &place);
  errno = before;
  return counts ? Meet(kind, place.path) : kNothing;
}

How MeetSocket(Kind kind, int descriptor) {
  if (!Counts(kind)) return kNothing;
  const int before = errno;
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  const bool counts = getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                      (address.ss_family == AF_INET || address.ss_family == AF_INET6);
  errno = before;
  return counts ? Meet(kind, "socket") : kNothing;
}

bool MeetMemory(Kind kind, size_t size) {
  return Counts(kind) && size >= plan.above && Meet(kind, "memory") == kError;
}

// The function that this library stands in front of.
template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name)                                       \
  static auto* const next = Next<decltype(name)>(#name); \
  static_cast<void>(next)

size_t Half(size_t size) { return size > 1 ? size / 2 : size; }

// Kills the process after `write` has written, or reserved, half of the bytes.
template <class Write>
[[noreturn]] void Tear(const Write& write, size_t size) {
  if (size > 1) static_cast<void>(!write(size / 2));
  syscall(SYS_kill, getpid(), SIGKILL);
  _exit(99);
}

template <class Call>
ssize_t Transfer(How how, size_t size, const Call& call) {
  if (how == kError) return -1;
  if (how == kEnd) return 0;
  if (how == kTear) Tear(call, size);
  return call(how == kShort ? Half(size) : size);
}

struct TellsTheTotal {
  ~TellsTheTotal() {
    if (state.load() == 2 && (plan.counts[kNew] || plan.counts[kMalloc])) {
      Log(plan.counts[kNew] ? kNew : kMalloc, counter.load(), "all", false);
    }
  }
} tells_the_total;

bool Writes(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0; }

}  // namespace

extern "C" {

// ---- Files
// ---------------------------------------------------------------------------------------

int open(const char* path, int flags, ...) {
  NEXT(open);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (MeetFile(Writes(flags) ? kCreate : kOpen, AT_FDCWD, path) == kError) return -1;
  return next(path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

int __open_2(const char* path, int flags) { return open(path, flags); }

int openat(int folder, const char* path, int flags, ...) {
  NEXT(openat);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (MeetFile(Writes(flags) ? kCreate : kOpen, folder, path) == kError) return -1;
  return next(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));

ssize_t read(int file, void* bytes, size_t size) {
  NEXT(read);
  return Transfer(MeetFile(kRead, file), size, [&](size_t n) { return next(file, bytes, n); });
}
ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  NEXT(pread);
  return Transfer(MeetFile(kRead, file), size,
                  [&](size_t n) { return next(file, bytes, n, offset); });
}
ssize_t pread64(int file, void* bytes, size_t size, off_t offset) __attribute__((alias("pread")));

ssize_t write(int file, const void* bytes, size_t size) {
  NEXT(write);
  return Transfer(MeetFile(kWrite, file), size, [&](size_t n) { return next(file, bytes, n); });
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  NEXT(pwrite);
  return Transfer(MeetFile(kWrite, file), size,
                  [&](size_t n) { return next(file, bytes, n, offset); });
}
ssize_t pwrite64(int file, const void* bytes, size_t size, off_t offset)
    __attribute__((alias("pwrite")));
ssize_t writev(int file, const iovec* parts, int count) {
  NEXT(writev);
  const How how = MeetFile(kWrite, file);
  if (how == kError) return -1;
  if (how == kTear) Tear([](size_t) { return 0; }, 0);
  return next(file, parts, count);
}
int posix_fallocate(int file, off_t offset, off_t size) {
  NEXT(posix_fallocate);
  const How how = MeetFile(kWrite, file);
  if (how == kError) return plan.error;  // it leaves errno alone
  const auto take = [&](size_t bytes) { return next(file, offset, static_cast<off_t>(bytes)); };
  if (how == kTear) Tear(take, static_cast<size_t>(size));
  return next(file, offset, size);
}
int posix_fallocate64(int file, off_t offset, off_t size) __attribute__((alias("posix_fallocate")));

int fsync(int file) {
  NEXT(fsync);
  return MeetFile(kSync, file) == kError ? -1 : next(file);
}
int fdatasync(int file) {
  NEXT(fdatasync);
  return MeetFile(kSync, file) == kError ? -1 : next(file);
}
int rename(const char* from, const char* to) {
  NEXT(rename);
  return MeetFile(kRename, AT_FDCWD, to) == kError ? -1 : next(from, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) {
  NEXT(renameat2);
  if (MeetFile(kRename, to_folder, to) == kError) return -1;
  return next(from_folder, from, to_folder, to, flags);
}
int link(const char* from, const char* to) {
  NEXT(link);
  return MeetFile(kRename, AT_FDCWD, to) == kError ? -1 : next(from, to);
}
int unlink(const char* path) {
  NEXT(unlink);
  return MeetFile(kUnlink, AT_FDCWD, path) == kError ? -1 : next(path);
}
int unlinkat(int folder, const char* path, int flags) {
  NEXT(unlinkat);
  return MeetFile(kUnlink, folder, path) == kError ? -1 : next(folder, path, flags);
}
int rmdir(const char* path) {
  NEXT(rmdir);
  return MeetFile(kUnlink, AT_FDCWD, path) == kError ? -1 : next(path);
}
int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  return MeetFile(kMkdir, AT_FDCWD, path) == kError ? -1 : next(path, mode);
}
int ftruncate(int file, off_t size) {
  NEXT(ftruncate);
  return MeetFile(kTruncate, file) == kError ? -1 : next(file, size);
}
int ftruncate64(int file, off_t size) __attribute__((alias("ftruncate")));

// The descriptor is closed in any case, as by the system.
int close(int file) {
  NEXT(close);
  const How how = MeetFile(kClose, file);
  const int error = errno;
  const int closed = next(file);
  if (how != kError) return closed;
  errno = error;
  return -1;
}
void* mmap(void* begin, size_t size, int protection, int flags, int file, off_t offset) {
  NEXT(mmap);
  if (file >= 0 && MeetFile(kMap, file) == kError) return MAP_FAILED;
  return next(begin, size, protection, flags, file, offset);
}
void* mmap64(void* begin, size_t size, int protection, int flags, int file, off_t offset)
    __attribute__((alias("mmap")));

int stat(const char* path, struct stat* info) {
  NEXT(stat);
  return MeetFile(kStat, AT_FDCWD, path) == kError ? -1 : next(path, info);
}
int stat64(const char* path, struct stat64* info) {
  NEXT(stat64);
  return MeetFile(kStat, AT_FDCWD, path) == kError ? -1 : next(path, info);
}
int lstat(const char* path, struct stat* info) {
  NEXT(lstat);
  return MeetFile(kStat, AT_FDCWD, path) == kError ? -1 : next(path, info);
}
int lstat64(const char* path, struct stat64* info) {
  NEXT(lstat64);
  return MeetFile(kStat, AT_FDCWD, path) == kError ? -1 : next(path, info);
}
int fstat(int file, struct stat* info) {
  NEXT(fstat);
  return MeetFile(kStat, file) == kError ? -1 : next(file, info);
}
int fstat64(int file, struct stat64* info) {
  NEXT(fstat64);
  return MeetFile(kStat, file) == kError ? -1 : next(file, info);
}
DIR* opendir(const char* path) {
  NEXT(opendir);
  return MeetFile(kList, AT_FDCWD, path) == kError ? nullptr : next(path);
}
dirent* readdir(DIR* folder) {
  NEXT(readdir);
  return MeetFile(kList, dirfd(folder)) == kError ? nullptr : next(folder);
}
dirent64* readdir64(DIR* folder) {
  NEXT(readdir64);
  return MeetFile(kList, dirfd(folder)) == kError ? nullptr : next(folder);
}
int flock(int file, int operation) {
  NEXT(flock);
  return MeetFile(kLock, file) == kError ? -1 : next(file, operation);
}

// ---- Sockets
// -------------------------------------------------------------------------------------

int connect(int socket, const sockaddr* address, socklen_t size) {
  NEXT(connect);
  return MeetSocket(kConnect, socket) == kError ? -1 : next(socket, address, size);
}
int bind(int socket, const sockaddr* address, socklen_t size) {
  NEXT(bind);
  return MeetSocket(kBind, socket) == kError ? -1 : next(socket, address, size);
}
// The connection is there and is lost: else a server that waits for events would hear of it again.
int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  NEXT(accept4);
  const int accepted = next(socket, address, size, flags);
  if (accepted < 0 || MeetSocket(kAccept, socket) != kError) return accepted;
  const int error = errno;
  close(accepted);
  errno = error;
  return -1;
}
int accept(int socket, sockaddr* address, socklen_t* size) {
  return accept4(socket, address, size, 0);
}
ssize_t recv(int socket, void* bytes, size_t size, int flags) {
  NEXT(recv);
  return Transfer(MeetSocket(kReceive, socket), size,
                  [&](size_t n) { return next(socket, bytes, n, flags); });
}
ssize_t recvmsg(int socket, msghdr* message, int flags) {
  NEXT(recvmsg);
  const How how = MeetSocket(kReceive, socket);
  if (how == kError) return -1;
  if (how == kEnd) return 0;
  return next(socket, message, flags);
}
ssize_t send(int socket, const void* bytes, size_t size, int flags) {
  NEXT(send);
  return Transfer(MeetSocket(kSend, socket), size,
                  [&](size_t n) { return next(socket, bytes, n, flags); });
}
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  NEXT(sendmsg);
  const How how = MeetSocket(kSend, socket);
  if (how == kError) return -1;
  if (how != kShort || message->msg_iovlen == 0) return next(socket, message, flags);
  iovec first = message->msg_iov[0];
  first.iov_len = Half(first.iov_len);
  msghdr part = *message;
  part.msg_iov = &first;
  part.msg_iovlen = 1;
  return next(socket, &part, flags);
}

// ---- The clock
// -----------------------------------------------------------------------------------

int clock_gettime(clockid_t clock, timespec* time) {
  NEXT(clock_gettime);
  const int result = next(clock, time);
  if (clock != CLOCK_REALTIME || !Counts(kClock)) return result;
  Meet(kClock, "clock");
  time->tv_sec += clock_step.load();
  return result;
}
int gettimeofday(timeval* time, void* zone) {
  NEXT(gettimeofday);
  const int result = next(time, zone);
  if (!Counts(kClock)) return result;
  Meet(kClock, "clock");
  time->tv_sec += clock_step.load();
  return result;
}
time_t time(time_t* seconds) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != nullptr) *seconds = now.tv_sec;
  return now.tv_sec;
}

// ---- Memory
// --------------------------------------------------------------------------------------

void* malloc(size_t size) { return MeetMemory(kMalloc, size) ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return MeetMemory(kMalloc, count * size) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  return MeetMemory(kMalloc, size) ? nullptr : __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  return MeetMemory(kMalloc, size) ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  if (MeetMemory(kMalloc, size)) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

namespace {

void* New(size_t size) { return MeetMemory(kNew, size) ? nullptr : __libc_malloc(size ? size : 1); }
void* New(size_t size, std::align_val_t alignment) {
  return MeetMemory(kNew, size) ? nullptr
                                : __libc_memalign(static_cast<size_t>(alignment), size ? size : 1);
}
void* OrThrow(void* memory) {
  if (memory != nullptr) return memory;
  if (const std::new_handler handler = std::get_new_handler()) handler();
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return OrThrow(New(size)); }
void* operator new[](size_t size) { return OrThrow(New(size)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return New(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return New(size); }
void* operator new(size_t size, std::align_val_t to) { return OrThrow(New(size, to)); }
void* operator new[](size_t size, std::align_val_t to) { return OrThrow(New(size, to)); }
void* operator new(size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return New(size, to);
}
void* operator new[](size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return New(size, to);
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { free(memory); }
