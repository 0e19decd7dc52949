// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn_graph.h>
#include <nccl.h>

#include "base/status.h"
#include "tools/libraries/cuda_versions.h"

namespace tessera::tools {

CudaVersions VersionsOfCuda() {
  return {.built = true,
          .runtime = Concat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10),
          .cublas = Concat(CUBLAS_VER_MAJOR, ".", CUBLAS_VER_MINOR, ".", CUBLAS_VER_PATCH),
          .cudnn = Concat(CUDNN_MAJOR, ".", CUDNN_MINOR, ".", CUDNN_PATCHLEVEL),
          .nccl = Concat(NCCL_MAJOR, ".", NCCL_MINOR, ".", NCCL_PATCH)};
}

}  // namespace tessera::tools
