#include "models/hub/weight_file.h"

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
  return std::get<SafetensorsFile>(file_).Get(name);
}

SafetensorsFile::Metadata WeightFile::metadata() const {
  const auto* safetensors = std::get_if<SafetensorsFile>(&file_);
  return safetensors == nullptr ? SafetensorsFile::Metadata() : safetensors->metadata();
}

}  // namespace tessera::models
