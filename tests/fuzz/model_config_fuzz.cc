// SPDX-License-Identifier: Apache-2.0
// config.json of every family, the model that is built from it without memory, and
// generation_config.json.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "models/family.h"
#include "models/generation/generation_config.h"
#include "models/hub/load_model.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

bool Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("config.json", bytes);
  const auto config = models::ReadModelConfig(folder.path());
  if (!config.ok()) return false;
  nn::BuildContext build;
  build.device = Device::Meta();
  return models::LoadModel(folder.path(), {.build = build}).ok();
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const models::Family& family : models::Families()) {
    for (const models::Preset& preset : family.presets) {
      nlohmann::json config = preset.config;
      config["model_type"] = family.model_type;
      seeds.push_back(config.dump());
    }
  }
  return seeds;
}

bool RunGeneration(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.WriteAll(bytes, {"generation_config.json", "config.json"});
  const auto config = models::ReadModelConfig(folder.path());
  const auto generation =
      models::ReadGenerationConfig(folder.path(), config.ok() ? *config : nlohmann::json::object());
  return generation.ok() && generation->Validate().ok();
}

std::vector<std::string> GenerationSeeds() {
  return {R"({"do_sample": true, "temperature": 0.7, "top_k": 50, "top_p": 0.9,)"
          R"( "stop_strings": ["x"]})",
          Joined({R"({"num_beams": 4, "max_new_tokens": 20, "eos_token_id": [1, 2],)"
                  R"( "early_stopping": true, "length_penalty": 2.0})",
                  R"({"model_type": "gpt2", "bos_token_id": 1, "eos_token_id": 2})"})};
}

const FuzzTargetRegistration generation({.name = "generation_config",
                                         .run = RunGeneration,
                                         .seeds = GenerationSeeds,
                                         .words = {std::string(kFileEnd), "repetition_penalty",
                                                   "max_length", "null", "-1", "1e308"}});
const FuzzTargetRegistration registration(
    {.name = "model_config",
     .run = Run,
     .seeds = Seeds,
     .words = {"model_type", "architectures", "num_labels", "id2label", "hidden_size", "null",
               "tie_word_embeddings", "9223372036854775807", "-1", "1e308"}});

}  // namespace
}  // namespace tessera::fuzz
