// SPDX-License-Identifier: Apache-2.0
#include "models/open/model_folder.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json_text.h"
#include "base/tar_archive.h"
#include "models/hub/gguf/gguf_file.h"
#include "models/hub/gguf/gguf_folder.h"
#include "models/hub/weight_file.h"
#include "models/open/run_folder.h"
#include "models/open/sentence_modules.h"
#include "nlohmann/json.hpp"

namespace tessera::models {
namespace {

bool HoldsWeights(const std::string& path) {
  return path.ends_with(".safetensors") || WeightFile::IsTorchName(path);
}

// A run's config.json is not the model's.
bool IsOfRun(const std::string& folder) {
  const std::string model = JoinPath(folder, "model");
  const auto has = [&](const char* file) { return PathExists(JoinPath(model, file)); };
  if (!has("config.json") && !has("adapter_config.json")) return false;
  const StatusOr<nlohmann::json> config = ReadJsonFile(JoinPath(folder, "config.json"));
  return config.ok() && IsRunConfig(*config);
}

}  // namespace

StatusOr<std::string> ModelFolderAt(const std::string& path,
                                    std::optional<MountedFolder>* mounted) {
  if (!PathExists(path)) return path;
  if (IsDirectory(path) && IsOfRun(path)) {
    return InvalidArgument(path, ": is a run's folder; its model is ", JoinPath(path, "model"));
  }
  if (IsDirectory(path)) return TransformerFolder(path);
  if (IsGgufFile(path)) {
    TESSERA_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Open(path));
    TESSERA_ASSIGN_OR_RETURN(*mounted, MountGguf(gguf));
    return (*mounted)->path();
  }
  TESSERA_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  const auto owner = std::make_shared<const MappedFile>(std::move(mapped));
  auto archive = MountModel(MountedFile::OfBytes(owner->data(), owner->size(), owner), path);
  if (!archive.ok() && HoldsWeights(path)) {
    return InvalidArgument(path, ": holds weights alone; give a model's folder, with config.json");
  }
  TESSERA_ASSIGN_OR_RETURN(*mounted, std::move(archive));
  return TransformerFolder((*mounted)->path());
}

StatusOr<MountedFolder> MountModel(const MountedFile& file, const std::string& name) {
  char begin[8];
  const auto size = std::min<int64_t>(file.size(), sizeof(begin));
  TESSERA_RETURN_IF_ERROR(file.Read(0, begin, size));
  if (!BeginsAsGguf(std::string_view(begin, static_cast<size_t>(size)))) {
    StatusOr<MountedFolder> tar = MountTar(file, name);
    if (tar.ok() || !Message(tar.status()).ends_with(" no tar archive")) return tar;
    return InvalidArgument(name, ": is neither a tar archive of a model nor a GGUF file");
  }
  TESSERA_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Of(file, name));
  return MountGguf(gguf);
}

}  // namespace tessera::models
