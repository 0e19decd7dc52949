// SPDX-License-Identifier: Apache-2.0
#include "tests/process/shell.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <sstream>

namespace tessera {

ShellRun RunShell(const std::string& command) {
  ShellRun ran;
  std::FILE* const pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 1 << 14> part;
  while (const size_t count = std::fread(part.data(), 1, part.size(), pipe)) {
    ran.output.append(part.data(), count);
  }
  const int status = pclose(pipe);
  ran.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ran;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace tessera
