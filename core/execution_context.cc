// SPDX-License-Identifier: Apache-2.0
#include "core/execution_context.h"

#include "base/error.h"

namespace tessera::internal {

constinit thread_local ExecutionContext execution_context;

namespace {

std::string PathOfModule() {
  const auto* const path = execution_context.module_path;
  return path == nullptr || (*path)->empty() ? std::string() : **path + ": ";
}

const bool told_errors = (SetPlaceOfErrors(PathOfModule), true);

}  // namespace

void ThrowCancelled() { throw CancelledError(); }

}  // namespace tessera::internal
