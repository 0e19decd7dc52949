// SPDX-License-Identifier: Apache-2.0
#include "core/execution_context.h"

#include "base/error.h"

namespace tessera::internal {

constinit thread_local ExecutionContext execution_context;

void ThrowCancelled() { throw CancelledError(); }

}  // namespace tessera::internal
