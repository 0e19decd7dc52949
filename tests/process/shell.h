// SPDX-License-Identifier: Apache-2.0
// A command of the shell, run to its end.
//
//   const ShellRun ran = RunShell("readelf -d " + library);
//   ASSERT_EQ(ran.code, 0) << ran.output;
#ifndef TESSERA_TESTS_PROCESS_SHELL_H_
#define TESSERA_TESTS_PROCESS_SHELL_H_

#include <string>
#include <vector>

namespace tessera {

struct ShellRun {
  int code = -1;       // as the shell has it: 128 + the signal for a program that one ended
  std::string output;  // standard output and error, as they came
};

ShellRun RunShell(const std::string& command);

std::vector<std::string> Lines(const std::string& text);

}  // namespace tessera

#endif  // TESSERA_TESTS_PROCESS_SHELL_H_
