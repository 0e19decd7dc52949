// SPDX-License-Identifier: Apache-2.0
#include "tools/named_tensors.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/weight_file.h"
#include "models/hub/weight_files.h"

namespace tessera::tools {
namespace {

constexpr std::string_view kModel = "model.";  // before the name of a weight in a checkpoint

}  // namespace

bool BeginsAsWeights(const std::string& path) {
  if (path.ends_with(".tensors.json")) return true;
  char first[9] = {};
  std::ifstream(path, std::ios::binary).read(first, sizeof(first));
  if (!models::WeightFile::IsTorchName(path)) return first[8] == '{';
  return std::string_view(first, 2) == "PK" || first[0] == '\x80';
}

StatusOr<NamedTensors> NamedTensors::Open(const std::string& path) {
  NamedTensors tensors;
  tensors.path_ = path;
  if (!PathExists(path)) return NotFound(path, ": no such file or directory");
  if (!IsDirectory(path)) {
    if (models::IsGgufFile(path)) {
      return InvalidArgument(path,
                             ": a GGUF file's blocks are no tensors; compare the folder that "
                             "`tessera convert ",
                             path, " FOLDER --dtype float32` makes of it");
    }
    if (!BeginsAsWeights(path)) {
      return InvalidArgument(path,
                             ": holds no weights; a run, a checkpoint, a model's folder, a "
                             "safetensors file or a file of torch.save does");
    }
    TESSERA_ASSIGN_OR_RETURN(models::WeightFile opened, models::WeightFile::Open(path));
    const auto file = std::make_shared<const models::WeightFile>(std::move(opened));
    for (const models::WeightEntry& entry : file->entries()) tensors.names_.push_back(entry.name);
    tensors.read_ = [file](const std::string& name) { return file->Read(name); };
  } else if (models::WeightFiles::Exist(path)) {
    TESSERA_ASSIGN_OR_RETURN(models::WeightFiles opened, models::WeightFiles::Open(path));
    const auto files = std::make_shared<const models::WeightFiles>(std::move(opened));
    tensors.names_ = files->Names();
    tensors.read_ = [files](const std::string& name) { return files->Read(name); };
  } else {
    std::string folder = path;
    if (!PathExists(JoinPath(path, "checkpoint.json"))) {
      const std::vector<int64_t> steps = dist::ListCheckpoints(path);
      if (steps.empty()) {
        return InvalidArgument(path, ": has neither weights nor a checkpoint of a run");
      }
      folder = dist::CheckpointPath(path, steps.back());
    }
    TESSERA_ASSIGN_OR_RETURN(const dist::Checkpoint checkpoint, dist::Checkpoint::Open(folder));
    const auto loaded = std::make_shared<std::map<std::string, Tensor>>();
    std::vector<dist::CheckpointTensor> wanted;
    for (const auto& [name, entry] : checkpoint.entries()) {
      const Tensor t = Empty(entry.shape, entry.dtype, Device::Cpu());
      loaded->emplace(name, t);
      wanted.push_back({name, t, Placement::Whole(entry.shape)});
      tensors.names_.push_back(name);
    }
    TESSERA_RETURN_IF_ERROR(checkpoint.Load(wanted));
    tensors.path_ = folder;
    tensors.is_checkpoint_ = true;
    tensors.read_ = [loaded](const std::string& name) -> StatusOr<Tensor> {
      return loaded->at(name);
    };
  }
  std::sort(tensors.names_.begin(), tensors.names_.end());
  return tensors;
}

NamedTensors NamedTensors::WeightsOfModel() const {
  NamedTensors weights;
  weights.path_ = path_;
  for (const std::string& name : names_) {
    if (name.starts_with(kModel)) weights.names_.push_back(name.substr(kModel.size()));
  }
  weights.read_ = [read = read_](const std::string& name) { return read(Concat(kModel, name)); };
  return weights;
}

}  // namespace tessera::tools
