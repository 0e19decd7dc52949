#include "core/execution_context.h"

namespace tessera::internal {

constinit thread_local ExecutionContext execution_context;

}  // namespace tessera::internal
