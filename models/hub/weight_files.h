// The weights of a Hugging Face folder: `model.safetensors`, or the shards that
// `model.safetensors.index.json` names, seen as one set of tensors.
//
//   TESSERA_ASSIGN_OR_RETURN(WeightFiles weights, WeightFiles::Open("gpt2"));
//   TESSERA_ASSIGN_OR_RETURN(Tensor wte, weights.Read("wte.weight"));
//
// Files are mapped: nothing is copied until a tensor is read.
#ifndef TESSERA_MODELS_HUB_WEIGHT_FILES_H_
#define TESSERA_MODELS_HUB_WEIGHT_FILES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors.h"
#include "core/status.h"
#include "core/tensor.h"

namespace tessera::models {

inline constexpr std::string_view kWeightsName = "model.safetensors";
inline constexpr std::string_view kWeightsIndexName = "model.safetensors.index.json";

class WeightFiles {
 public:
  // Whether the folder holds weights of any kind, `pytorch_model.bin` included.
  static bool Exist(const std::string& folder);

  // NotFound when there are none; InvalidArgument with the command that converts them when there is
  // only `pytorch_model.bin`; otherwise what SafetensorsFile::Open says of a file, or what is wrong
  // with the index: a shard that is missing, or that lacks a tensor.
  static StatusOr<WeightFiles> Open(const std::string& folder);

  // The file that holds the tensor, for messages; the folder if there is no such tensor.
  const std::string& PathOf(std::string_view name) const;
  // nullptr for a name that is not there.
  const SafetensorsFile::Entry* Find(std::string_view name) const;
  // All names, sorted.
  std::vector<std::string> Names() const;

  // A copy on the CPU in the file's dtype.
  StatusOr<Tensor> Read(std::string_view name) const;

  // The files, in the order in which the index names them first.
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  Status OpenOne(const std::string& path);
  Status OpenIndexed(const std::string& index_path);

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> file_of_;
};

}  // namespace tessera::models

#endif  // TESSERA_MODELS_HUB_WEIGHT_FILES_H_
