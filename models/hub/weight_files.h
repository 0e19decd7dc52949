// SPDX-License-Identifier: Apache-2.0
// The weights of a Hugging Face folder, seen as one set of tensors: `model.safetensors`, or the
// shards that `model.safetensors.index.json` names; where there are neither, `pytorch_model.bin`,
// or the shards of `pytorch_model.bin.index.json` (models/hub/torch_file), or a list of tensors in
// another file (models/hub/tensor_list.h).
//
//   TESSERA_ASSIGN_OR_RETURN(WeightFiles weights, WeightFiles::Open("gpt2"));
//   TESSERA_ASSIGN_OR_RETURN(Tensor wte, weights.Read("wte.weight"));
//
// Files are mapped: nothing is copied but tensors that are transposed, sliced or not aligned, and
// those one at a time.
#ifndef TESSERA_MODELS_HUB_WEIGHT_FILES_H_
#define TESSERA_MODELS_HUB_WEIGHT_FILES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/tensor.h"
#include "models/hub/weight_file.h"

namespace tessera::models {

inline constexpr std::string_view kWeightsName = "model.safetensors";
inline constexpr std::string_view kWeightsIndexName = "model.safetensors.index.json";

class WeightFiles {
 public:
  // Whether the folder holds weights of any kind.
  static bool Exist(const std::string& folder);

  // NotFound when there are none; otherwise what WeightFile::Open says of a file, or what is wrong
  // with the index: a shard that is missing, or that lacks a tensor.
  static StatusOr<WeightFiles> Open(const std::string& folder);

  // The file that holds the tensor, for messages; the folder if there is no such tensor.
  const std::string& PathOf(std::string_view name) const;
  // nullptr for a name that is not there.
  const WeightEntry* Find(std::string_view name) const;
  // All names, sorted.
  std::vector<std::string> Names() const;
  // What torch.compile and data parallelism put before names, "_orig_mod." and "module.", where it
  // is before all of them; else empty.
  const std::string& wrapper() const { return wrapper_; }

  // Whether two tensors that are there have the same shape and the same elements.
  StatusOr<bool> SameValues(std::string_view name, std::string_view other) const;

  const std::string& folder() const { return folder_; }

  // On the CPU in the file's dtype. Where the elements lie in a row and are aligned, these are the
  // file's own bytes, read-only, which the tensor keeps mapped; else a copy.
  StatusOr<Tensor> Read(std::string_view name) const;

  // The files, in the order in which the index names them first.
  const std::vector<WeightFile>& files() const { return files_; }

 private:
  Status OpenOne(const std::string& path);
  StatusOr<TensorView> View(std::string_view name, std::vector<std::byte>* made) const;
  Status OpenIndexed(const std::string& index_path);
  void FindWrapper();

  std::string folder_;
  std::string wrapper_;
  std::vector<WeightFile> files_;
  std::map<std::string, size_t, std::less<>> file_of_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_WEIGHT_FILES_H_
