// SPDX-License-Identifier: Apache-2.0
// Linked where the program is built without CUDA.
#include "tools/libraries/cuda_versions.h"

namespace tessera::tools {

CudaVersions VersionsOfCuda() { return {}; }

}  // namespace tessera::tools
