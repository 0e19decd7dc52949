// SPDX-License-Identifier: Apache-2.0
// torch's types of storages.
#ifndef TESSERA_MODELS_HUB_TORCH_FILE_STORAGE_TYPE_H_
#define TESSERA_MODELS_HUB_TORCH_FILE_STORAGE_TYPE_H_

#include <cstdint>
#include <string_view>

namespace tessera::models {

struct StorageType {
  std::string_view name;   // "torch.FloatStorage"
  std::string_view dtype;  // as in safetensors: "F32"
  int64_t element_bytes;
};

// nullptr: no storage of elements that are numbers one by one. torch.storage.UntypedStorage is
// none: what is made of it names a function that is not known here.
const StorageType* FindStorageType(std::string_view name);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TORCH_FILE_STORAGE_TYPE_H_
