// SPDX-License-Identifier: Apache-2.0
// Files of named tensors, as the programs of the parity scripts exchange them.
#ifndef TESSERA_TESTS_PARITY_TENSOR_FILE_H_
#define TESSERA_TESTS_PARITY_TENSOR_FILE_H_

#include <map>
#include <string>

#include "base/status.h"
#include "core/tensor.h"

namespace tessera {

using NamedTensors = std::map<std::string, Tensor>;

// On the CPU; errors name the path and the entry.
StatusOr<NamedTensors> ReadTensors(const std::string& path);
Status WriteTensors(const std::string& path, const NamedTensors& tensors);

}  // namespace tessera

#endif  // TESSERA_TESTS_PARITY_TENSOR_FILE_H_
