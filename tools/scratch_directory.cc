// SPDX-License-Identifier: Apache-2.0
#include "tools/scratch_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace tessera::tools {
namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

char removed_on_signal[PATH_MAX];  // empty: nothing

// As in a signal handler: with system calls alone, and without memory from the heap.
void RemoveFolder(int parent, const char* name) {
  const int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  alignas(dirent64) char entries[4096];
  for (ssize_t got; (got = getdents64(folder, entries, sizeof(entries))) > 0;) {
    for (ssize_t at = 0; at < got;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const std::string_view child = entry->d_name;
      if (child == "." || child == "..") continue;
      if (unlinkat(folder, entry->d_name, 0) != 0) RemoveFolder(folder, entry->d_name);
    }
  }
  close(folder);
  unlinkat(parent, name, AT_REMOVEDIR);
}

void RemoveAndEnd(int signal) {
  if (removed_on_signal[0] != '\0') RemoveFolder(AT_FDCWD, removed_on_signal);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void ExchangeHandlers(void (*from)(int), void (*to)(int)) {
  for (const int signal : kEndingSignals) {
    struct sigaction now = {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == from) std::signal(signal, to);
  }
}

}  // namespace

StatusOr<std::unique_ptr<const ScratchDirectory>> ScratchDirectory::Create() {
  const char* const given = std::getenv("TMPDIR");
  const bool is_set = given != nullptr && *given != '\0';
  const std::string base = is_set ? given : "/tmp";
  std::string path = JoinPath(base, "tessera-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return SystemFailure(errno, is_set ? "TMPDIR: " : "", base,
                         is_set ? "" : " (TMPDIR is not set)",
                         ": cannot make a folder for temporary files");
  }
  auto folder = std::make_unique<const ScratchDirectory>(std::move(path));
  RemoveOnSignal(folder->path());
  return folder;
}

void ScratchDirectory::RemoveOnSignal(const std::string& path) {
  if (removed_on_signal[0] != '\0' || path.size() >= sizeof(removed_on_signal)) return;
  removed_on_signal[path.copy(removed_on_signal, sizeof(removed_on_signal) - 1)] = '\0';
  ExchangeHandlers(SIG_DFL, RemoveAndEnd);
}

void ScratchDirectory::ForgetOnSignal(const std::string& path) {
  if (path != removed_on_signal) return;
  ExchangeHandlers(RemoveAndEnd, SIG_DFL);
  removed_on_signal[0] = '\0';
}

}  // namespace tessera::tools
