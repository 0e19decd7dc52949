// SPDX-License-Identifier: Apache-2.0
// A model before it is built: its configuration, its tokenizer, and what the one changes in the
// other. Runs, the training library and OpenModel begin here.
//
//   TESSERA_ASSIGN_OR_RETURN(DescribedModel described, DescribeModel("gpt2-folder"));
//   TESSERA_RETURN_IF_ERROR(described.FindTokenizer({}));
//   LoadModel(described.folder, {.config_changes = described.changes});
#ifndef TESSERA_MODELS_OPEN_DESCRIBE_MODEL_H_
#define TESSERA_MODELS_OPEN_DESCRIBE_MODEL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json_member.h"
#include "base/mounted_folder.h"
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "models/family.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct TokenizerChoice {
  enum class Want {
    kIfThere,  // nullptr where the model has none
    kYes       // NotFound where the model has none
  };
  Want want = Want::kYes;
  std::string spec = {};  // a folder, a file that holds one, or a name (`byte`); "": the model's
  // Makes the tokenizer of a folder or a name. Unset: data::LoadTokenizer.
  std::function<StatusOr<std::unique_ptr<data::Tokenizer>>(const std::string& spec)> make = nullptr;
};

struct DescribedModel {
  std::string folder;  // to read, mounted where a file holds it; or a preset's name
  std::optional<MountedFolder> archive;        // kept as long as the model is
  const Preset* preset = nullptr;              // of a preset
  JsonMember config;                           // `changes` included
  JsonMember changes = JsonMember::Object();   // LoadOptions::config_changes
  std::unique_ptr<data::Tokenizer> tokenizer;  // nullptr: none
  std::string tokenizer_folder;                // the tokenizer's, whose chat template counts
  std::optional<MountedFolder> tokenizer_archive;

  // Keys of `config` that are replaced; null removes one.
  void Change(const nlohmann::json& keys);
  // Sets the tokenizer, and the keys that follow from it: ids of special tokens, and of a preset
  // the size of the vocabulary.
  Status FindTokenizer(const TokenizerChoice& choice);
};

// Of a folder, a file that holds one (models/open/model_folder.h), or a preset. NotFound for what
// is none of them. Errors name the file.
StatusOr<DescribedModel> DescribeModel(const std::string& path);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_DESCRIBE_MODEL_H_
