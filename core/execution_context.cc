#include "core/execution_context.h"

#include "core/error.h"

namespace tessera::internal {

constinit thread_local ExecutionContext execution_context;

void ThrowCancelled() { throw CancelledError(); }

}  // namespace tessera::internal
