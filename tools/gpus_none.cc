// SPDX-License-Identifier: Apache-2.0
// Linked where the program is built without CUDA.
#include "tools/gpus.h"

namespace tessera::tools {

std::string DescribeGpus() { return "cuda:0: this program was built without CUDA\n"; }

std::string BuiltFor() { return "CPU"; }

}  // namespace tessera::tools
