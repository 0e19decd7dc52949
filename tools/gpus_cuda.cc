#include "core/cuda/runtime.h"
#include "tools/gpus.h"

namespace tessera::tools {

std::string DescribeGpus() { return cuda::DescribeDevices(); }

}  // namespace tessera::tools
