// SPDX-License-Identifier: Apache-2.0
// One file of weights, whichever of the formats it has.
//
//   TESSERA_ASSIGN_OR_RETURN(const WeightFile file, WeightFile::Open("pytorch_model.bin"));
//   for (const WeightEntry& entry : file.entries()) ...
//   std::vector<std::byte> made;
//   TESSERA_ASSIGN_OR_RETURN(const TensorView view, file.Get("lm_head.weight", &made));
#ifndef TESSERA_MODELS_HUB_WEIGHT_FILE_H_
#define TESSERA_MODELS_HUB_WEIGHT_FILE_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "core/safetensors.h"
#include "core/tensor.h"
#include "models/hub/tensor_list.h"
#include "models/hub/torch_file/torch_file.h"

namespace tessera::models {

using WeightEntry = TorchFile::Entry;

class WeightFile {
 public:
  // What torch.save writes is known by its name: .bin, .pt, .pth, .th or .ckpt; so is a list
  // (models/hub/tensor_list.h): .tensors.json. Anything else is taken for safetensors.
  static bool IsTorchName(std::string_view path);
  static StatusOr<WeightFile> Open(const std::string& path);

  const MappedFile& file() const;
  const std::string& path() const { return file().path(); }
  const std::vector<WeightEntry>& entries() const { return entries_; }
  // nullptr for a name that is not there.
  const WeightEntry* Find(std::string_view name) const;
  // As TorchFile::Get.
  StatusOr<TensorView> Get(std::string_view name, std::vector<std::byte>* made) const;
  // The whole of an entry, on the CPU and in the file's dtype.
  StatusOr<Tensor> Read(std::string_view name) const;
  // InvalidArgument, with the file and the entry, which is there, unless it is floating and of this
  // shape.
  Status CheckShape(std::string_view name, const Shape& expected) const;
  // The header's `__metadata__`, of safetensors.
  SafetensorsFile::Metadata metadata() const;

 private:
  std::variant<SafetensorsFile, TorchFile, TensorList> file_;
  std::vector<WeightEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_WEIGHT_FILE_H_
