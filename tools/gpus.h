// The GPUs of this machine, for `tessera inspect --devices`.
#ifndef TESSERA_TOOLS_GPUS_H_
#define TESSERA_TOOLS_GPUS_H_

#include <string>

namespace tessera::tools {

// A line per GPU: its name, compute capability and memory; or one that says why there is none.
std::string DescribeGpus();

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_GPUS_H_
