// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, for `tessera inspect --devices`, and what the program was built for.
#ifndef TESSERA_TOOLS_GPUS_H_
#define TESSERA_TOOLS_GPUS_H_

#include <string>

namespace tessera::tools {

// A line per GPU: its name, compute capability and memory; or one that says why there is none.
std::string DescribeGpus();

// "CPU" or "CPU and CUDA".
std::string BuiltFor();

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_GPUS_H_
