// SPDX-License-Identifier: Apache-2.0
#include "tests/parity/tensor_file.h"

#include <cstring>
#include <vector>

#include "core/safetensors.h"

namespace tessera {

StatusOr<NamedTensors> ReadTensors(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  NamedTensors tensors;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    TESSERA_ASSIGN_OR_RETURN(const TensorView view, file.Get(entry.name));
    const Tensor t = Empty(Shape(view.shape), view.dtype);
    if (view.nbytes > 0) std::memcpy(t.raw_data(), view.data, static_cast<size_t>(view.nbytes));
    tensors.emplace(entry.name, t);
  }
  return tensors;
}

Status WriteTensors(const std::string& path, const NamedTensors& tensors) {
  NamedTensors whole;  // contiguous
  std::vector<NamedTensorView> views;
  for (const auto& [name, t] : tensors) {
    const Tensor& bytes = whole.emplace(name, t.ContiguousCopy()).first->second;
    views.push_back({name,
                     {t.dtype(),
                      {t.shape().begin(), t.shape().end()},
                      static_cast<const std::byte*>(bytes.raw_data()),
                      bytes.nbytes()}});
  }
  return WriteSafetensors(path, views);
}

}  // namespace tessera
