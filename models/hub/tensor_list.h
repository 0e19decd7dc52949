// SPDX-License-Identifier: Apache-2.0
// Weights whose bytes are parts of another file: what a file of another format, mounted as a folder
// (base/mounted_folder.h), has in place of safetensors.
//
//   {"file": "model.gguf",
//    "tensors": [{"name": "model.norm.weight", "dtype": "F32", "shape": [64], "begin": 4096},
//                {"name": "lm_head.weight", "dtype": "F16", "shape": [2, 3], "begin": 4352,
//                 "sizes": [2, 3], "strides": [1, 2]}]}
//
// `file` is beside the list. With "plus": -1, which only floating tensors have, the elements are
// the file's less 1. With `sizes` and `strides`, which go together, the elements are not in a row:
// they are those of this view of the bytes from `begin` on, in row-major order.
#ifndef TESSERA_MODELS_HUB_TENSOR_LIST_H_
#define TESSERA_MODELS_HUB_TENSOR_LIST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "core/dtype.h"
#include "core/safetensors.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

inline constexpr std::string_view kTensorListName = "model.tensors.json";

struct ListedTensor {
  SafetensorsEntry entry;
  int64_t begin = 0;
  std::vector<int64_t> sizes = {};  // empty: the elements are in a row
  std::vector<int64_t> strides = {};
  double plus = 0;  // is added to what the file holds

  int64_t nbytes() const;
};

// As JSON.
nlohmann::json TensorListJson(std::string_view file, const std::vector<ListedTensor>& tensors);

class TensorList {
 public:
  // Refuses, by the tensor's name, what does not lie in the file.
  static StatusOr<TensorList> Open(const std::string& path);

  // That of the tensors.
  const MappedFile& file() const { return file_; }
  // In the list's order.
  const std::vector<ListedTensor>& tensors() const { return tensors_; }

  // NotFound for an unknown name. Valid as long as the object, which may be moved, and `made`,
  // which holds the bytes of a tensor whose elements are not the file's in a row.
  StatusOr<TensorView> Get(std::string_view name, std::vector<std::byte>* made) const;

 private:
  MappedFile file_;
  std::vector<ListedTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_TENSOR_LIST_H_
