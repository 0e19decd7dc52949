#include "models/hub/weight_files.h"

#include <cstring>
#include <utility>

#include "core/file.h"
#include "data/tokenizer/json_text.h"

namespace tessera::models {
namespace {

constexpr std::string_view kPickledName = "pytorch_model.bin";

Status PickledOnly(const std::string& folder) {
  return InvalidArgument(
      folder, ": holds ", kPickledName, ", which is a Python program and is not read; in that ",
      "folder, run: python3 -c \"import torch, safetensors.torch as s; s.save_file({k: ",
      "v.contiguous().clone() for k, v in torch.load('", kPickledName,
      "', map_location='cpu', weights_only=True).items()}, '", kWeightsName,
      "', {'format': 'pt'})\"");
}

// A shard stands beside its index: its name leads nowhere else.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

}  // namespace

bool WeightFiles::Exist(const std::string& folder) {
  for (const std::string_view name : {kWeightsName, kWeightsIndexName, kPickledName,
                                      std::string_view("pytorch_model.bin.index.json")}) {
    if (PathExists(JoinPath(folder, name))) return true;
  }
  return false;
}

StatusOr<WeightFiles> WeightFiles::Open(const std::string& folder) {
  WeightFiles weights;
  weights.folder_ = folder;
  const std::string single = JoinPath(folder, kWeightsName);
  const std::string index = JoinPath(folder, kWeightsIndexName);
  if (PathExists(single)) {
    TESSERA_RETURN_IF_ERROR(weights.OpenOne(single));
  } else if (PathExists(index)) {
    TESSERA_RETURN_IF_ERROR(weights.OpenIndexed(index));
  } else if (Exist(folder)) {
    return PickledOnly(folder);
  } else {
    return NotFound(folder, ": holds no weights (", kWeightsName, ")");
  }
  return weights;
}

Status WeightFiles::OpenOne(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  for (const SafetensorsFile::Entry& entry : file.entries()) file_of_[entry.name] = files_.size();
  files_.push_back(std::move(file));
  return OkStatus();
}

Status WeightFiles::OpenIndexed(const std::string& index_path) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json index, data::ReadJsonFile(index_path));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return InvalidArgument(index_path, ": 'weight_map' is missing or not an object");
  }
  std::map<std::string, size_t> opened;
  for (const auto& [name, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || !IsPlainName(shard.get<std::string>())) {
      return InvalidArgument(index_path, ": the file of tensor '", name, "' is not a file name");
    }
    const std::string shard_name = shard.get<std::string>();
    auto found = opened.find(shard_name);
    if (found == opened.end()) {
      TESSERA_ASSIGN_OR_RETURN(SafetensorsFile file,
                               SafetensorsFile::Open(JoinPath(folder_, shard_name)));
      found = opened.emplace(shard_name, files_.size()).first;
      files_.push_back(std::move(file));
    }
    const SafetensorsFile& file = files_[found->second];
    if (file.Find(name) == nullptr) {
      return DataLoss(file.path(), ": lacks tensor '", name, "', which ", kWeightsIndexName,
                      " says it holds");
    }
    file_of_[name] = found->second;
  }
  return OkStatus();
}

const std::string& WeightFiles::PathOf(std::string_view name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? folder_ : files_[found->second].path();
}

const SafetensorsFile::Entry* WeightFiles::Find(std::string_view name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? nullptr : files_[found->second].Find(name);
}

std::vector<std::string> WeightFiles::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

StatusOr<Tensor> WeightFiles::Read(std::string_view name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) return NotFound(folder_, ": tensor '", name, "' is missing");
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, files_[found->second].Get(name));
  if (view.shape.size() > static_cast<size_t>(kMaxDims)) {
    return InvalidArgument(PathOf(name), ": tensor '", name, "' has ", view.shape.size(),
                           " dimensions; at most ", kMaxDims, " are supported");
  }
  Tensor t = Empty(Shape(view.shape), view.dtype);
  if (view.nbytes > 0) std::memcpy(t.raw_data(), view.data, static_cast<size_t>(view.nbytes));
  return t;
}

}  // namespace tessera::models
