// SPDX-License-Identifier: Apache-2.0
// A process that ends with the one that started it.
//
//   TESSERA_ASSIGN_OR_RETURN(const pid_t pid, StartChild({"/usr/bin/env"}, {"RANK=0"}));
//   if (const std::optional<int> code = EndedChild(pid)) ...
#ifndef TESSERA_TOOLS_ELASTIC_CHILD_H_
#define TESSERA_TOOLS_ELASTIC_CHILD_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera::tools {

// Starts `words` in a process group of its own, so that a terminal's interrupt reaches it through
// its parent alone. It gets this process's environment, with the entries NAME=VALUE of `own` in
// the place of those with the same names. The kernel kills it when this thread ends.
StatusOr<pid_t> StartChild(const std::vector<std::string>& words,
                           const std::vector<std::string>& own);

// The exit code, 128 + the signal that ended it; nullopt while it runs. Once for each child.
std::optional<int> EndedChild(pid_t pid);

// Whether a signal has stopped the process, and nothing has continued it.
bool IsStopped(pid_t pid);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_ELASTIC_CHILD_H_
