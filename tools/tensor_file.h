// SPDX-License-Identifier: Apache-2.0
// Files of named tensors that commands write.
//
//   const ClaimOptions claim = {.is_own = [](const std::string& path) {
//     return IsTensorFileOf("tessera forward", path);
//   }};
//   TESSERA_RETURN_IF_ERROR(ClaimOutput(path, claim, &lock));
//   return WriteTensorFile(path, outputs.entries(), "tessera forward");
#ifndef TESSERA_TOOLS_TENSOR_FILE_H_
#define TESSERA_TOOLS_TENSOR_FILE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"

namespace tessera::tools {

// Writes a safetensors file of the tensors, in their order, and in its metadata the command that
// wrote it.
Status WriteTensorFile(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       std::string_view command);

// Whether WriteTensorFile wrote the file for this command, which may then replace it.
bool IsTensorFileOf(std::string_view command, const std::string& path);

}  // namespace tessera::tools

#endif  // TESSERA_TOOLS_TENSOR_FILE_H_
