// SPDX-License-Identifier: Apache-2.0
// Tensors by name in a file, in the safetensors format, which Python's safetensors reads and
// writes.
//
//   TESSERA_RETURN_IF_ERROR(SaveTensors("probe.safetensors", {{"hidden", h}, {"ids", ids}}));
//   TESSERA_ASSIGN_OR_RETURN(auto tensors, LoadTensors("probe.safetensors"));
//   Tensor h = tensors.at("hidden");
//   TESSERA_RETURN_IF_ERROR(SaveTensors("net.safetensors", net.StateDict()));
//
// core/safetensors.h reads and writes tensor by tensor.
#ifndef TESSERA_CORE_TENSOR_FILES_H_
#define TESSERA_CORE_TENSOR_FILES_H_

#include <map>
#include <string>

#include "base/status.h"
#include "core/device.h"
#include "core/tensor.h"

namespace tessera {

// Any strides, dtypes and devices; the file appears whole or not at all. A tensor on meta, or an
// undefined one, is refused by name.
Status SaveTensors(const std::string& path, const std::map<std::string, Tensor>& tensors);

// All tensors of a file, copied, off the tape. Failures name the path and the entry.
StatusOr<std::map<std::string, Tensor>> LoadTensors(const std::string& path,
                                                    Device device = Device::Cpu());

}  // namespace tessera

#endif  // TESSERA_CORE_TENSOR_FILES_H_
