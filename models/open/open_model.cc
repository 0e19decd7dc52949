// SPDX-License-Identifier: Apache-2.0
#include "models/open/open_model.h"

#include <utility>

#include "base/file.h"
#include "base/tar_archive.h"
#include "core/batch_keys.h"
#include "models/generation/special_tokens.h"

namespace tessera::models {
namespace {

using Want = OpenOptions::Want;

bool WantsTokenizer(const OpenOptions& options, const OpenedModel& opened,
                    const std::string& folder) {
  switch (options.tokenizer) {
    case Want::kYes:
      return true;
    case Want::kIfThere:
      return !options.tokenizer_folder.empty() || data::HasTokenizer(folder);
    case Want::kNo:
      break;
  }
  return !opened.generation.stop_strings.empty() || LacksTokenIds(opened.config);
}

// Settings first, weights last: what is wrong is said before anything large is read.
Status Fill(const OpenOptions& options, OpenedModel* opened) {
  const std::string& folder = opened->folder;
  LoadOptions load = options.load;
  // A preset has neither weights nor a tokenizer; the former is said.
  if (!IsDirectory(folder)) return LoadModel(folder, load).status();
  const auto configure = [&]() -> Status {
    TESSERA_ASSIGN_OR_RETURN(GenerationConfig defaults,
                             ReadGenerationConfig(folder, opened->config));
    TESSERA_ASSIGN_OR_RETURN(opened->generation,
                             WithSettings(std::move(defaults), options.settings));
    return OkStatus();
  };
  TESSERA_ASSIGN_OR_RETURN(opened->config, ReadConfigFile(folder));
  TESSERA_RETURN_IF_ERROR(configure());
  opened->tokenizer_folder = folder;
  if (!options.tokenizer_folder.empty()) {
    TESSERA_ASSIGN_OR_RETURN(opened->tokenizer_folder,
                             FolderAt(options.tokenizer_folder, &opened->tokenizer_archive));
  }
  if (WantsTokenizer(options, *opened, folder)) {
    TESSERA_ASSIGN_OR_RETURN(opened->tokenizer, data::LoadTokenizer(opened->tokenizer_folder));
    load.config_changes = TokenIdsFromTokenizer(*opened->tokenizer, opened->config);
    opened->config.update(load.config_changes);
    if (!load.config_changes.empty()) TESSERA_RETURN_IF_ERROR(configure());
    const nlohmann::json& asked = options.load.config_changes;
    if (asked.is_object()) load.config_changes.update(asked);
  }
  if (options.before_weights != nullptr) TESSERA_RETURN_IF_ERROR(options.before_weights(*opened));
  TESSERA_ASSIGN_OR_RETURN(opened->model, LoadModel(folder, load));
  opened->config = opened->model->config();
  if (opened->model->Takes(keys::kPixelValues)) {
    TESSERA_ASSIGN_OR_RETURN(opened->pictures,
                             data::ImageProcessor::OfModel(folder, opened->model->config()));
  }
  const std::string not_applied = NotApplied(folder, opened->generation);
  if (!not_applied.empty() && load.warn != nullptr) load.warn(not_applied);
  return OkStatus();
}

}  // namespace

StatusOr<OpenedModel> OpenModel(const std::string& path, const OpenOptions& options) {
  OpenedModel opened;
  TESSERA_ASSIGN_OR_RETURN(opened.folder, FolderAt(path, &opened.archive));
  TESSERA_RETURN_IF_ERROR(Fill(options, &opened));
  return opened;
}

StatusOr<OpenedModel> OpenModel(MountedFolder archive, const OpenOptions& options) {
  OpenedModel opened;
  opened.folder = archive.path();
  opened.archive = std::move(archive);
  TESSERA_RETURN_IF_ERROR(Fill(options, &opened));
  return opened;
}

}  // namespace tessera::models
