// SPDX-License-Identifier: Apache-2.0
// Files that hold a model, as the folder of that model: GGUF files and tar archives, known by their
// first bytes.
//
//   std::optional<MountedFolder> mounted;
//   TESSERA_ASSIGN_OR_RETURN(const std::string folder, ModelFolderAt("model.gguf", &mounted));
//   auto model = LoadModel(folder);
#ifndef TESSERA_MODELS_OPEN_MODEL_FOLDER_H_
#define TESSERA_MODELS_OPEN_MODEL_FOLDER_H_

#include <optional>
#include <string>

#include "base/mounted_folder.h"
#include "base/status.h"

namespace tessera::models {

// The folder to read at `path`: itself, or what a file there holds, which stays mounted as long as
// `mounted` holds it; of a folder of sentence-transformers, the one in it that holds the model. A
// path at which there is nothing, such as the name of a preset, is returned unchanged.
StatusOr<std::string> ModelFolderAt(const std::string& path, std::optional<MountedFolder>* mounted);

// A file that is read elsewhere; `name` is what messages call it.
StatusOr<MountedFolder> MountModel(const MountedFile& file, const std::string& name);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_MODEL_FOLDER_H_
