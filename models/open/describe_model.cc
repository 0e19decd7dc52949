// SPDX-License-Identifier: Apache-2.0
#include "models/open/describe_model.h"

#include <utility>

#include "base/file.h"
#include "models/generation/special_tokens.h"
#include "models/hub/change_config.h"
#include "models/hub/load_model.h"
#include "models/open/model_folder.h"
#include "nlohmann/json.hpp"

namespace tessera::models {

void DescribedModel::Change(const nlohmann::json& keys) {
  changes->update(keys);
  ChangeConfig(keys, &*config);
}

Status DescribedModel::FindTokenizer(const TokenizerChoice& choice) {
  const bool needed = choice.want == TokenizerChoice::Want::kYes;
  std::string spec = choice.spec;
  if (spec.empty()) spec = preset == nullptr ? folder : preset->tokenizer;
  if (spec.empty() && !needed) return OkStatus();
  if (spec.empty()) return NotFound("model '", folder, "' comes without a tokenizer");
  const bool own = choice.spec.empty() && preset == nullptr;
  if (own && !needed && !data::HasTokenizer(folder)) return OkStatus();
  tokenizer_folder = spec;
  // A file that has a tokenizer's name ("byte") is no archive of one.
  if (!own && choice.make == nullptr && spec != "byte") {
    TESSERA_ASSIGN_OR_RETURN(tokenizer_folder, ModelFolderAt(spec, &tokenizer_archive));
  }
  TESSERA_ASSIGN_OR_RETURN(tokenizer, choice.make == nullptr ? data::LoadTokenizer(tokenizer_folder)
                                                             : choice.make(tokenizer_folder));
  if (tokenizer == nullptr) return OkStatus();
  if (preset != nullptr) Change(VocabularyOf(*tokenizer, config));
  Change(TokenIdsFromTokenizer(*tokenizer, config));
  return OkStatus();
}

StatusOr<DescribedModel> DescribeModel(const std::string& path) {
  DescribedModel described;
  if (!IsDirectory(path)) described.preset = FindPreset(path);
  described.folder = path;
  if (described.preset == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(described.folder, ModelFolderAt(path, &described.archive));
  }
  TESSERA_ASSIGN_OR_RETURN(described.config, ReadModelConfig(described.folder));
  return described;
}

}  // namespace tessera::models
