// SPDX-License-Identifier: Apache-2.0
#include "tools/elastic/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/file.h"

namespace tessera::tools {
namespace {

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& own) {
  std::vector<std::string> all = own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view old = *entry;
    const std::string_view name = old.substr(0, old.find('=') + 1);
    const bool is_own = std::any_of(
        own.begin(), own.end(), [&](const std::string& other) { return other.starts_with(name); });
    if (!is_own) all.emplace_back(old);
  }
  return all;
}

}  // namespace

StatusOr<pid_t> StartChild(const std::vector<std::string>& words,
                           const std::vector<std::string>& own) {
  // Between fork and exec nothing may be allocated: other threads may hold the allocator's locks.
  std::vector<std::string> arguments = words;
  std::vector<std::string> environment = EnvironmentWith(own);
  const std::vector<char*> argument_pointers = Pointers(&arguments);
  const std::vector<char*> environment_pointers = Pointers(&environment);
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return SystemFailure(errno, words[0], ": cannot start it");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int ignored : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) signal(ignored, SIG_DFL);
    if (getppid() == parent) {
      execvpe(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
    }
    const int error = errno;
    if (write(failure[1], &error, sizeof(error)) < 0) _exit(126);
    _exit(127);
  }
  const int fork_error = errno;
  close(failure[1]);
  int error = 0;
  const bool failed = pid < 0 || read(failure[0], &error, sizeof(error)) > 0;
  close(failure[0]);
  if (!failed) return pid;
  if (pid > 0) waitpid(pid, nullptr, 0);
  return SystemFailure(pid < 0 ? fork_error : error, words[0], ": cannot start it");
}

std::optional<int> EndedChild(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) != pid) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The state stands behind the name of the program, which is in parentheses.
bool IsStopped(pid_t pid) {
  const StatusOr<std::string> text = ReadFile(Concat("/proc/", pid, "/stat"));
  if (!text.ok()) return false;
  const size_t name_end = text->rfind(')');
  return name_end != std::string::npos && text->compare(name_end, 3, ") T") == 0;
}

}  // namespace tessera::tools
