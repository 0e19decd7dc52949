// SPDX-License-Identifier: Apache-2.0
#include "models/open/open_model.h"

#include <utility>

#include "base/file.h"
#include "core/batch_keys.h"
#include "models/family.h"
#include "models/generation/special_tokens.h"
#include "models/open/model_folder.h"
#include "nlohmann/json.hpp"
#include "nn/packed_weight.h"

namespace tessera::models {
namespace {

using Want = OpenOptions::Want;

// Whether it is looked for, and needed.
std::optional<TokenizerChoice::Want> WantOf(const OpenOptions& options, const OpenedModel& opened) {
  using Choice = TokenizerChoice::Want;
  if (options.tokenizer == Want::kYes) return Choice::kYes;
  if (options.tokenizer == Want::kIfThere) {
    return options.tokenizer_folder.empty() ? Choice::kIfThere : Choice::kYes;
  }
  if (opened.generation.stop_strings.empty() && !LacksTokenIds(opened.config)) return std::nullopt;
  return Choice::kYes;
}

// Settings first, weights last: what is wrong is said before anything large is read.
// `root` is what was opened: the model may lie in a folder of it.
Status Fill(const OpenOptions& options, const std::string& root, OpenedModel* opened) {
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
  if (const auto want = WantOf(options, *opened)) {
    TESSERA_RETURN_IF_ERROR(
        opened->FindTokenizer({.want = *want, .spec = options.tokenizer_folder}));
    if (!opened->changes->empty()) TESSERA_RETURN_IF_ERROR(configure());
  }
  if (opened->tokenizer != nullptr) {
    const std::string& templates = opened->tokenizer_folder;
    opened->chat = options.hides_paths ? data::ChatFormat::OfFolderWithoutPath(templates)
                                       : data::ChatFormat::OfFolder(templates);
  }
  opened->encoder =
      TextEncoder::OfFolder(root, opened->tokenizer == nullptr ? folder : opened->tokenizer_folder,
                            opened->config, options.hides_paths);
  if (options.before_weights != nullptr) TESSERA_RETURN_IF_ERROR(options.before_weights(*opened));
  if (load.config_changes->is_object()) opened->Change(load.config_changes);
  load.config_changes = opened->changes;
  TESSERA_ASSIGN_OR_RETURN(opened->model, LoadModel(folder, load));
  opened->config = opened->model->config();
  if (!Generates(*opened->model)) nn::PackWeights(*opened->model);
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
  TESSERA_ASSIGN_OR_RETURN(opened.folder, ModelFolderAt(path, &opened.archive));
  const std::string root = opened.archive ? opened.archive->path() : path;
  TESSERA_RETURN_IF_ERROR(Fill(options, root, &opened));
  return opened;
}

StatusOr<OpenedModel> OpenModel(MountedFolder archive, const OpenOptions& options) {
  OpenedModel opened;
  const std::string root = archive.path();
  opened.folder = TransformerFolder(root);
  opened.archive = std::move(archive);
  TESSERA_RETURN_IF_ERROR(Fill(options, root, &opened));
  return opened;
}

}  // namespace tessera::models
