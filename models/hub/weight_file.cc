// SPDX-License-Identifier: Apache-2.0
#include "models/hub/weight_file.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera::models {

bool WeightFile::IsTorchName(std::string_view path) {
  for (const std::string_view end : {".bin", ".pt", ".pth", ".th", ".ckpt"}) {
    if (path.size() > end.size() && path.substr(path.size() - end.size()) == end) return true;
  }
  return false;
}

StatusOr<WeightFile> WeightFile::Open(const std::string& path) {
  WeightFile result;
  if (IsTorchName(path)) {
    TESSERA_ASSIGN_OR_RETURN(TorchFile file, TorchFile::Open(path));
    result.entries_ = file.entries();
    result.file_ = std::move(file);
  } else if (path.ends_with(".tensors.json")) {
    TESSERA_ASSIGN_OR_RETURN(TensorList list, TensorList::Open(path));
    for (const ListedTensor& tensor : list.tensors()) {
      const SafetensorsEntry& entry = tensor.entry;
      result.entries_.push_back({entry.name, std::string(SafetensorsDTypeName(entry.dtype)),
                                 entry.shape, tensor.nbytes()});
    }
    result.file_ = std::move(list);
  } else {
    TESSERA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    for (const SafetensorsFile::Entry& entry : file.entries()) {
      result.entries_.push_back({entry.name, entry.dtype, entry.shape, entry.end - entry.begin});
    }
    result.file_ = std::move(file);
  }
  for (size_t i = 0; i < result.entries_.size(); ++i) {
    result.by_name_[result.entries_[i].name] = i;
  }
  return result;
}

const MappedFile& WeightFile::file() const {
  return std::visit([](const auto& file) -> const MappedFile& { return file.file(); }, file_);
}

const WeightEntry* WeightFile::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

StatusOr<TensorView> WeightFile::Get(std::string_view name, std::vector<std::byte>* made) const {
  if (const auto* torch = std::get_if<TorchFile>(&file_)) return torch->Get(name, made);
  if (const auto* list = std::get_if<TensorList>(&file_)) return list->Get(name, made);
  return std::get<SafetensorsFile>(file_).Get(name);
}

StatusOr<Tensor> WeightFile::Read(std::string_view name) const {
  std::vector<std::byte> made;
  TESSERA_ASSIGN_OR_RETURN(const TensorView view, Get(name, &made));
  const Tensor whole = Empty(Shape(view.shape), view.dtype);
  std::copy_n(view.data, view.nbytes, static_cast<std::byte*>(whole.raw_data()));
  return whole;
}

Status WeightFile::CheckShape(std::string_view name, const Shape& expected) const {
  const WeightEntry& found = *Find(name);
  const std::optional<DType> dtype = ParseSafetensorsDType(found.dtype);
  const bool same = found.shape == std::vector<int64_t>(expected.begin(), expected.end());
  if (same && dtype && IsFloating(*dtype)) return OkStatus();
  std::string shape;  // of any number of dimensions
  for (const int64_t size : found.shape) shape += Concat(shape.empty() ? "" : ", ", size);
  return InvalidArgument(path(), ": '", name, "' is ", found.dtype, " [", shape,
                         "]; for this model it must be a floating ", expected);
}

SafetensorsFile::Metadata WeightFile::metadata() const {
  const auto* safetensors = std::get_if<SafetensorsFile>(&file_);
  return safetensors == nullptr ? SafetensorsFile::Metadata() : safetensors->metadata();
}

}  // namespace tessera::models
