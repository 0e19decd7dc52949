// config.json of every family, and the model that is built from it without memory.
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "models/family.h"
#include "models/hub/load_model.h"
#include "tests/fuzz/fuzz_target.h"

namespace tessera::fuzz {
namespace {

void Run(std::string_view bytes) {
  static const FuzzFolder folder;
  folder.Write("config.json", bytes);
  const auto config = models::ReadModelConfig(folder.path());
  if (!config.ok()) return;
  nn::BuildContext build;
  build.device = Device::Meta();
  models::LoadModel(folder.path(), {.build = build}).status().IgnoreError();
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const models::Family* family : models::Families()) {
    for (const models::Preset& preset : family->presets) {
      nlohmann::json config = preset.config;
      config["model_type"] = family->model_type;
      seeds.push_back(config.dump());
    }
  }
  return seeds;
}

const FuzzTargetRegistration registration(
    {.name = "model_config",
     .run = Run,
     .seeds = Seeds,
     .words = {"model_type", "architectures", "num_labels", "id2label", "hidden_size", "null",
               "tie_word_embeddings", "9223372036854775807", "-1", "1e308"}});

}  // namespace
}  // namespace tessera::fuzz
