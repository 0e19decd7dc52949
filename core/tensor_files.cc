// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_files.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/safetensors.h"

namespace tessera {

Status SaveTensors(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) return InvalidArgument(path, ": tensor '", name, "' is undefined");
    if (tensor.device().is_meta()) {
      return InvalidArgument(path, ": tensor '", name,
                             "' is on meta and has no elements: ", tensor);
    }
    const Shape& shape = tensor.shape();
    entries.push_back({name, tensor.dtype(), std::vector<int64_t>(shape.begin(), shape.end())});
  }
  // Wide dtypes first: then all data is aligned.
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return DTypeSize(a.dtype) > DTypeSize(b.dtype);
  });
  TESSERA_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, entries));
  for (const SafetensorsEntry& entry : entries) {
    const Tensor rows = tensors.at(entry.name).Detach().ContiguousCopy();
    const Tensor host = rows.device().is_cpu() ? rows : CopyTo(rows, Device::Cpu());
    TESSERA_RETURN_IF_ERROR(writer.Append(host.raw_data(), host.nbytes()));
  }
  return writer.Commit();
}

StatusOr<std::map<std::string, Tensor>> LoadTensors(const std::string& path, Device device) {
  TESSERA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::map<std::string, Tensor> tensors;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView view, file.Get(entry.name));
    if (view.shape.size() > static_cast<size_t>(kMaxDims)) {
      return InvalidArgument(path, ": tensor '", entry.name, "' has ", view.shape.size(),
                             " dims; at most ", kMaxDims, " are supported");
    }
    const Tensor host = Empty(Shape(view.shape), view.dtype);
    if (view.nbytes > 0) {
      std::memcpy(host.raw_data(), view.data, static_cast<size_t>(view.nbytes));
    }
    tensors[entry.name] = device.is_cpu() ? host : CopyTo(host, device);
  }
  return tensors;
}

}  // namespace tessera
