// SPDX-License-Identifier: Apache-2.0
// A model that is ready to be asked: weights with their tokenizer, generation defaults, chat
// template, text encoder and picture processor. The command line, the server and the C library open
// models here.
//
//   TESSERA_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel("qwen-folder", {}));
//   Generate(*opened.model, prompts, opened.generation, {.tokenizer = opened.tokenizer.get()});
#ifndef TESSERA_MODELS_OPEN_OPEN_MODEL_H_
#define TESSERA_MODELS_OPEN_OPEN_MODEL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json_member.h"
#include "base/mounted_folder.h"
#include "base/status.h"
#include "data/chat/chat_format.h"
#include "data/image/image_processor.h"
#include "models/generation/generation_config.h"
#include "models/hub/load_model.h"
#include "models/model.h"
#include "models/open/describe_model.h"
#include "models/open/text_encoder.h"
#include "nlohmann/json_fwd.hpp"

namespace tessera::models {

struct OpenedModel;

struct OpenOptions {
  enum class Want {
    kNo,       // only where the model cannot be asked without it
    kIfThere,  // nullptr where the folder has none
    kYes       // NotFound where the folder has none
  };
  // How weights are loaded. `warn` is also told of generation settings that are not applied.
  LoadOptions load = {.require_weights = true};
  Want tokenizer = Want::kYes;
  std::string tokenizer_folder = {};  // or a name (`byte`); "": the model's own
  bool hides_paths = false;           // failures of chat template and text encoder name no folder
  // What is asked for over the generation defaults (WithSettings). It is refused before any weights
  // are read.
  JsonMember settings = JsonMember::Object();
  // Called when all but the weights is there, for what must not be wrong when they have been read.
  std::function<Status(const OpenedModel&)> before_weights = nullptr;
};

struct OpenedModel : DescribedModel {
  GenerationConfig generation;
  // That of the tokenizer's folder; NotFound where it has none.
  StatusOr<data::ChatFormat> chat = NotFound("the model has no chat template");
  StatusOr<TextEncoder> encoder = TextEncoder();  // of texts into vectors and scores
  std::unique_ptr<Model> model;
  std::optional<data::ImageProcessor> pictures;  // of a model that takes pixels
};

// A folder, or a file that holds one (models/open/model_folder.h). Errors name the file.
StatusOr<OpenedModel> OpenModel(const std::string& path, const OpenOptions& options);
// One that is mounted already.
StatusOr<OpenedModel> OpenModel(MountedFolder archive, const OpenOptions& options);

}  // namespace tessera::models

#endif  // TESSERA_MODELS_OPEN_OPEN_MODEL_H_
