// SPDX-License-Identifier: Apache-2.0
#include "models/hub/weight_files.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "models/hub/other_checkpoints.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

constexpr std::string_view kTorchName = "pytorch_model.bin";
constexpr std::string_view kTorchIndexName = "pytorch_model.bin.index.json";

constexpr std::string_view kWrappers[] = {"_orig_mod.", "module."};

// A shard is beside its index: its name leads nowhere else.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

// NotFound, unless there are weights that are not read.
Status NoWeightsIn(const std::string& folder) {
  const std::string none = Concat(folder, ": holds no weights (", kWeightsName, ")");
  std::string others = CheckpointOfOthersIn(folder);
  if (others.empty()) others = WeightsOfOthersIn(folder);
  return others.empty() ? NotFound(none) : InvalidArgument(none, ", but ", others);
}

}  // namespace

bool WeightFiles::Exist(const std::string& folder) {
  for (const std::string_view name :
       {kWeightsName, kWeightsIndexName, kTorchName, kTorchIndexName, kTensorListName}) {
    if (PathExists(JoinPath(folder, name))) return true;
  }
  return false;
}

StatusOr<WeightFiles> WeightFiles::Open(const std::string& folder) {
  WeightFiles weights;
  weights.folder_ = folder;
  for (const auto& [single, index] : {std::pair(kWeightsName, kWeightsIndexName),
                                      {kTorchName, kTorchIndexName},
                                      {kTensorListName, kTensorListName}}) {
    const std::string path = JoinPath(folder, single);
    const std::string index_path = JoinPath(folder, index);
    if (!PathExists(path) && !PathExists(index_path)) continue;
    TESSERA_RETURN_IF_ERROR(PathExists(path) ? weights.OpenOne(path)
                                             : weights.OpenIndexed(index_path));
    weights.FindWrapper();
    return weights;
  }
  return NoWeightsIn(folder);
}

Status WeightFiles::OpenOne(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(WeightFile file, WeightFile::Open(path));
  for (const WeightEntry& entry : file.entries()) file_of_[entry.name] = files_.size();
  files_.push_back(std::move(file));
  return OkStatus();
}

Status WeightFiles::OpenIndexed(const std::string& index_path) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json index, ReadJsonFile(index_path));
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
      TESSERA_ASSIGN_OR_RETURN(WeightFile file, WeightFile::Open(JoinPath(folder_, shard_name)));
      found = opened.emplace(shard_name, files_.size()).first;
      files_.push_back(std::move(file));
    }
    const WeightFile& file = files_[found->second];
    if (file.Find(name) == nullptr) {
      return DataLoss(file.path(), ": lacks tensor '", name, "', which ", index_path,
                      " says it holds");
    }
    file_of_[name] = found->second;
  }
  return OkStatus();
}

void WeightFiles::FindWrapper() {
  const auto before_all = [this](const std::string& wrapper) {
    return !file_of_.empty() && std::ranges::all_of(file_of_, [&](const auto& entry) {
      return entry.first.starts_with(wrapper);
    });
  };
  for (bool longer = true; longer;) {
    longer = false;
    for (const std::string_view one : kWrappers) {
      if (!before_all(Concat(wrapper_, one))) continue;
      wrapper_ += one;
      longer = true;
    }
  }
}

const std::string& WeightFiles::PathOf(std::string_view name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? folder_ : files_[found->second].path();
}

const WeightEntry* WeightFiles::Find(std::string_view name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? nullptr : files_[found->second].Find(name);
}

std::vector<std::string> WeightFiles::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

StatusOr<TensorView> WeightFiles::View(std::string_view name, std::vector<std::byte>* made) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) return NotFound(folder_, ": tensor '", name, "' is missing");
  return files_[found->second].Get(name, made);
}

StatusOr<bool> WeightFiles::SameValues(std::string_view name, std::string_view other) const {
  std::vector<std::byte> made[2];
  TESSERA_ASSIGN_OR_RETURN(const TensorView a, View(name, &made[0]));
  TESSERA_ASSIGN_OR_RETURN(const TensorView b, View(other, &made[1]));
  if (a.shape != b.shape) return false;
  if (a.dtype != b.dtype) {
    TESSERA_ASSIGN_OR_RETURN(const Tensor first, Read(name));
    TESSERA_ASSIGN_OR_RETURN(const Tensor second, Read(other));
    return first.ToVector<double>() == second.ToVector<double>();
  }
  return a.data == b.data || a.nbytes == 0 ||
         std::memcmp(a.data, b.data, static_cast<size_t>(a.nbytes)) == 0;
}

StatusOr<Tensor> WeightFiles::Read(std::string_view name) const {
  std::vector<std::byte> made;
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, View(name, &made));
  if (view.shape.size() > static_cast<size_t>(kMaxDims)) {
    return InvalidArgument(PathOf(name), ": tensor '", name, "' has ", view.shape.size(),
                           " dimensions; at most ", kMaxDims, " are supported");
  }
  const Shape shape(view.shape);
  const bool aligned = reinterpret_cast<uintptr_t>(view.data) % DTypeSize(view.dtype) == 0;
  if (made.empty() && aligned && view.nbytes > 0) {
    const auto& owner = files_[file_of_.find(name)->second].file().owner();
    auto bytes = Storage::ReadOnly(view.data, static_cast<size_t>(view.nbytes), owner);
    return Tensor(std::move(bytes), shape, ContiguousStrides(shape), 0, view.dtype);
  }
  Tensor t = Empty(shape, view.dtype);
  if (view.nbytes > 0) std::memcpy(t.raw_data(), view.data, static_cast<size_t>(view.nbytes));
  return t;
}

}  // namespace tessera::models
