// SPDX-License-Identifier: Apache-2.0
// The versions of NVIDIA's libraries that a program with CUDA was compiled with.
#ifndef TESSERA_TOOLS_LIBRARIES_CUDA_VERSIONS_H_
#define TESSERA_TOOLS_LIBRARIES_CUDA_VERSIONS_H_

#include <string>

namespace tessera::tools {

struct CudaVersions {
  bool built = false;  // with CUDA; the others are empty otherwise
  std::string runtime = {};
  std::string cublas = {};
  std::string cudnn = {};
  std::string nccl = {};
};
CudaVersions VersionsOfCuda();

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_LIBRARIES_CUDA_VERSIONS_H_
