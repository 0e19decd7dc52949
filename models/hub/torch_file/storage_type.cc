// SPDX-License-Identifier: Apache-2.0
#include "models/hub/torch_file/storage_type.h"

namespace tessera::models {

const StorageType* FindStorageType(std::string_view name) {
  static constexpr StorageType kTypes[] = {
      {"torch.FloatStorage", "F32", 4},     {"torch.HalfStorage", "F16", 2},
      {"torch.BFloat16Storage", "BF16", 2}, {"torch.DoubleStorage", "F64", 8},
      {"torch.LongStorage", "I64", 8},      {"torch.IntStorage", "I32", 4},
      {"torch.ShortStorage", "I16", 2},     {"torch.CharStorage", "I8", 1},
      {"torch.ByteStorage", "U8", 1},       {"torch.BoolStorage", "BOOL", 1},
  };
  for (const StorageType& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

}  // namespace tessera::models
